"""Connectors beside the core (Kafka topics as a sink, tables as a source, transforms of rows), suites of tests for
those who write connectors, and the plan of a migration to another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acktrail.branches import Branch
from acktrail.model.acls import Acl, Names, WantedAcls, each, reset

POSITIONS_TOPIC: Final = "acktrail-positions"
"""Where a topic sink keeps its positions, unless its configuration says otherwise."""
TRANSACTIONAL_IDS: Final = "acktrail/"
"""Begins every transactional id of a topic sink."""


def _topic_sink(_: Names, topics: Names) -> list[Acl]:
    """It writes to `topics`, which are there, and to its topic of positions."""
    written = [*topics, POSITIONS_TOPIC]
    return [
        Acl("WRITE", "transactional-id", TRANSACTIONAL_IDS, is_prefix=True),
        *each("WRITE", "topic", written),
        *each("DESCRIBE_CONFIGS", "topic", written),
        Acl("READ", "topic", POSITIONS_TOPIC),
    ]


WANTED: Final[Mapping[str, WantedAcls]] = {"topic-sink": _topic_sink, "migration": reset}
"""A migration resets start offsets on the target cluster; a checkpoint topic that it reads is one of the topics."""
PLUGINS = Branch(
    package="acktrail_plugins",
    change_kinds={"migration": "acktrail_plugins.migration.migration_kind:MIGRATION"},
    acls="acktrail_plugins:WANTED",
)
