"""Every source connector without its rights says which, in its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest
from servers.workload import Workload, until

from acktrail.connect.runtime.config_store import ConfigStore
from acktrail.connect.runtime.states import RunState
from acktrail.connect.runtime.worker import Worker
from acktrail.embedded import EmbeddedBroker
from acktrail.model.acls import ALL, Acl

pytestmark = pytest.mark.broker

USER: Final = "unwelcome"
SEEN: Final = (Acl("DESCRIBE", "group", ALL), Acl("DESCRIBE_CONFIGS", "group", ALL))
TOPICS: Final = Acl("DESCRIBE", "topic", ALL)
OFTEN: Final = {"interval.ms": "1000"}
SOURCES: Final[dict[str, tuple[tuple[Acl, ...], dict[str, str]]]] = {
    "ShareGroupStateSource": ((Acl("READ", "topic", "__share_group_state"),), {}),
    "ShareGroupMetadataSource": ((Acl("READ", "topic", "__consumer_offsets"),), {}),
    "ShareGroupOffsetsSource": ((*SEEN, TOPICS), OFTEN),
    "DeadLetterSource": (SEEN, {"topics.refresh.interval.ms": "100"}),
}
"""What each needs, and keys that let it look often."""
ALL_RIGHTS: Final = frozenset(acl for acls, _ in SOURCES.values() for acl in acls)
WITHOUT_A_CLUSTER: Final = {"DeltaTableSource"}
REGISTERED: Final = entry_points(group="acktrail.connect.sources")
NAMES: Final = sorted({each.name for each in REGISTERED if each.value.startswith("acktrail.")} - WITHOUT_A_CLUSTER)
"""Those of branches have tests of their own."""


@pytest.mark.parametrize("name", NAMES)
def test_a_source_without_its_rights_says_which(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path, name: str
) -> None:
    """Each is tried."""
    says_which_rights(guarded, guarded_workload, tmp_path, name, *SOURCES[name])


def says_which_rights(
    guarded: EmbeddedBroker,
    guarded_workload: Workload,
    tmp_path: Path,
    name: str,
    acls: Sequence[Acl],
    own: Mapping[str, str],
) -> None:
    """Those that are missing and no other one; no word once they are granted: a source that runs on sees them with its
    next look, one that failed is started again."""
    worker = Worker(ConfigStore())

    def told() -> tuple[set[RunState], str]:
        statuses = [worker.status(name), *(task.status for _, task in worker.tasks(name))]
        return {status.state for status in statuses}, "".join(status.trace for status in statuses)

    kafka = guarded.config(USER)
    reached = {f"kafka.{key}": str(value) for key, value in kafka.properties.items()}
    reached |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "sink.tables": str(tmp_path / "tables")}
    try:
        worker.create(name, {"connector.class": name, **reached, **own})
        until(lambda: told()[1], what="a word about the rights")
        _, said = told()
        assert {text for text in map(str, ALL_RIGHTS) if text in said} == set(map(str, acls)), said
        for acl in acls:
            guarded_workload.allow(USER, acl.operation, acl.kind.upper(), acl.name)

        def is_well() -> bool:
            if RunState.FAILED in told()[0]:
                worker.restart(name, include_tasks=True, only_failed=True)
            return told() == ({RunState.RUNNING}, "") and bool(worker.tasks(name))

        until(is_well, what="no word any more")
    finally:
        worker.stop()
        for acl in acls:
            guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)
