"""Every source connector without its rights says which, in its status."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest
from drivers.rights import OFTEN, SEEN, TOPICS, says_which_rights
from servers.workload import Workload

from acktrail.embedded import EmbeddedBroker
from acktrail.model.acls import Acl

pytestmark = pytest.mark.broker

SOURCES: Final[dict[str, tuple[tuple[Acl, ...], dict[str, str]]]] = {
    "ShareGroupStateSource": ((Acl("READ", "topic", "__share_group_state"),), {}),
    "ShareGroupMetadataSource": ((Acl("READ", "topic", "__consumer_offsets"),), {}),
    "ShareGroupOffsetsSource": ((*SEEN, TOPICS), OFTEN),
    "DeadLetterSource": (SEEN, {"topics.refresh.interval.ms": "100"}),
}
"""What each needs, and keys that let it look often."""
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
