"""What the status of a source says without its rights, and that it runs with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from drivers.rights import SEEN, TOPICS
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.model.acls import Acl
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.task_thread import RunState
from acktrail_connect.worker.worker import Worker

_USER: Final = "unwelcome"
_LOGS: Final = tuple(Acl("READ", "topic", topic) for topic in ("__share_group_state", "__consumer_offsets"))
_ALL_RIGHTS: Final = (*SEEN, TOPICS, *_LOGS)
OFTEN: Final = {"interval.ms": "1000"}


def says_which_rights(
    guarded: GuardedBroker,
    guarded_workload: Workload,
    tmp_path: Path,
    name: str,
    acls: Sequence[Acl],
    own: Mapping[str, str],
) -> None:
    """A source without its rights names those that are missing and no other one. Once they are granted there is no
    word: a source that runs on sees them with its next look, one that failed is started again."""
    worker = Worker(ConfigStore())

    def told() -> tuple[set[RunState], str]:
        statuses = [worker.status(name), *(task.status for task in worker.tasks(name))]
        return {status.state for status in statuses}, "".join(status.trace for status in statuses)

    kafka = guarded.config(_USER)
    reached = {f"kafka.{key}": str(value) for key, value in kafka.properties.items()}
    reached |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "sink.tables": str(tmp_path / "tables")}
    try:
        worker.create(name, {"connector.class": name, **reached, **own})
        until(lambda: told()[1], what="a word about the rights")
        _, said = told()
        assert {text for text in map(str, _ALL_RIGHTS) if text in said} == set(map(str, acls)), said
        for acl in acls:
            guarded_workload.allow(_USER, acl.operation, acl.kind.upper(), acl.name)

        def is_well() -> bool:
            if RunState.FAILED in told()[0]:
                worker.restart(name, include_tasks=True, only_failed=True)
            return told() == ({RunState.RUNNING}, "") and bool(worker.tasks(name))

        until(is_well, what="no word any more")
    finally:
        worker.stop()
        for acl in acls:
            guarded_workload.revoke(_USER, acl.operation, acl.kind.upper(), acl.name)
