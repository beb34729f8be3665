"""The command line in a process that is killed at a named point of a redrive's transaction: run by a test."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from acktrail.change.apply.leased_attempt import Attempt
from acktrail.cli.main import main
from acktrail_connect.sinks.transactional_writer import TransactionalWriter
from acktrail_redrive import put_back


def killing(owner: Any, name: str, at: int, *, is_after: bool) -> None:
    """The signal comes at the call number `at` of a function, right before it or when it has returned."""
    call, seen = getattr(owner, name), [0]

    def called(*arguments: Any, **named: Any) -> Any:
        seen[0] += 1
        if not is_after and seen[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*arguments, **named)
        if is_after and seen[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, called)


if __name__ == "__main__":
    point, number, size = sys.argv.pop(1), int(sys.argv.pop(1)), int(sys.argv.pop(1))
    put_back._MOST_RECORDS = size
    if point == "begun":
        killing(TransactionalWriter, "fence", number, is_after=False)
    elif point == "delivered":
        killing(Attempt, "check_lease", number, is_after=False)
    elif point == "committed":
        killing(TransactionalWriter, "write", number, is_after=True)
    main()
