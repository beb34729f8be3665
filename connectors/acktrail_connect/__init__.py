"""Connectors: their `contract`, sources, sinks, transforms, and what runs them; `testing`: suites for authors.

An export runs its tasks once, a worker runs connectors until it is stopped, a stream runs in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acktrail.branches import Branch
from acktrail.model.acls import Acl, Names, WantedAcls, each, seen

DEAD_LETTERS: Final = "dead-letters"
POSITIONS_TOPIC: Final = "acktrail-positions"
"""Where a topic sink keeps its positions, unless its configuration says otherwise."""
TRANSACTIONAL_IDS: Final = "acktrail/"
"""Begins every transactional id of a topic sink."""
_GROUPS_TOPIC: Final = "__consumer_offsets"


def _topic_sink(_: Names, topics: Names) -> list[Acl]:
    """It writes to `topics`, which are there, and to its topic of positions."""
    written = [*topics, POSITIONS_TOPIC]
    return [
        Acl("WRITE", "transactional-id", TRANSACTIONAL_IDS, is_prefix=True),
        *each("WRITE", "topic", written),
        *each("DESCRIBE_CONFIGS", "topic", written),
        Acl("READ", "topic", POSITIONS_TOPIC),
    ]


WANTED: Final[Mapping[str, WantedAcls]] = {
    "metadata": lambda _, __: [Acl("READ", "topic", _GROUPS_TOPIC)],
    DEAD_LETTERS: lambda groups, topics: [*seen(groups), *each("READ", "topic", topics)],
    "topic-sink": _topic_sink,
}
"""Dead-letter topics are read, and looked for in the groups' configurations."""
CONNECT = Branch(package="acktrail_connect", acls="acktrail_connect:WANTED")
