"""A process that carries out a plan and is killed right before or right after the request: run by a test."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.group_changes import steps


def main() -> None:
    bootstrap_servers, tables, plan, moment = sys.argv[1:]
    send = ShareGroupAdmin.alter_offsets

    def killed(*arguments: Any) -> Any:
        if moment == "after":
            send(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    ShareGroupAdmin.alter_offsets = killed  # type: ignore[method-assign]
    steps.execute(
        KafkaConfig(bootstrap_servers=bootstrap_servers),
        TablesConfig(uri=tables),
        json.loads(Path(plan).read_text()),
    )


if __name__ == "__main__":
    main()
