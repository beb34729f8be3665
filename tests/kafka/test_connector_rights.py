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


def test_every_source_is_tried() -> None:
    """Those of branches have tests of their own."""
    registered = entry_points(group="acktrail.connect.sources")
    assert {each.name for each in registered if each.value.startswith("acktrail.")} == SOURCES.keys()


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_without_its_rights_says_which(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path, name: str
) -> None:
    """In its status."""
    says_which_rights(guarded, guarded_workload, tmp_path, name, *SOURCES[name])
