"""A process that carries out a plan and is killed right before or right after the request: run by a test."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from acktrail.change import api
from acktrail.change.change_kind import read_plan
from acktrail.change.cluster import Cluster
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin


def main() -> None:
    bootstrap_servers, tables, plan, moment = sys.argv[1:]
    send = ShareGroupAdmin.alter_offsets

    def killed(*arguments: Any) -> Any:
        if moment == "after":
            send(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    ShareGroupAdmin.alter_offsets = killed  # type: ignore[method-assign]
    made = read_plan(Path(plan))
    with Cluster(KafkaConfig(bootstrap_servers=bootstrap_servers)) as cluster:
        api.execute(cluster, api.open_journal(TablesConfig(uri=tables), made), made)


if __name__ == "__main__":
    main()
