"""The command line in a process that gets a signal once it has its lease, or right before or right after its first
change: run by a test."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from acktrail.change.apply import leased_attempt
from acktrail.change.apply.reset_execution import ResetAttempt
from acktrail.cli.main import main
from acktrail.kafka.admin import ShareGroupAdmin


def interrupting(owner: type, name: str, number: int) -> None:
    """The signal comes when the method has returned."""
    call = getattr(owner, name)

    def called(*arguments: Any, **named: Any) -> Any:
        answer = call(*arguments, **named)
        os.kill(os.getpid(), number)
        return answer

    setattr(owner, name, called)


if __name__ == "__main__":
    when, number = sys.argv.pop(1), int(sys.argv.pop(1))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    if when == "leased":
        interrupting(leased_attempt, "take_leases", number)
    elif when == "before":
        interrupting(ResetAttempt, "_compare_once_more", number)
    else:
        for change in ("alter_offsets", "delete_offsets"):
            interrupting(ShareGroupAdmin, change, number)
    main()
