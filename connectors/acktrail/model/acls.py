"""The ACLs that acktrail needs: the fewest with which a connector, a reset, a migration or an expansion works, and as
command lines of Kafka's own tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.share_partition import STATE_TOPIC

ALL: Final = "*"
"""Every group, or every topic."""
_WORDS: Final = {
    "ALTER": "Alter",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
    "READ": "Read",
    "WRITE": "Write",
}
"""Operations as ``kafka-acls.sh`` names them."""
_GROUPS_TOPIC: Final = "__consumer_offsets"
POSITIONS_TOPIC: Final = "acktrail-positions"
"""Where a topic sink keeps its positions, unless its configuration says otherwise."""
TRANSACTIONAL_IDS: Final = "acktrail/"
"""Begins every transactional id of a topic sink."""


class Purpose(StrEnum):
    """What the ACLs are for: export and observation; the sources of offsets, of group metadata, of dead letters and of
    the partition ledger, and the topic sink; reset of start offsets; a migration, on the target cluster; the expansion
    of a topic."""

    EXPORT = "export"
    OFFSETS = "offsets"
    METADATA = "metadata"
    DEAD_LETTERS = "dead-letters"
    LEDGER = "ledger"
    TOPIC_SINK = "topic-sink"
    RESET = "reset"
    MIGRATION = "migration"
    EXPANSION = "expansion"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """`operation` on the `kind` (``group``, ``topic`` or ``transactional-id``) with this `name`, or ``ALL`` of them;
    with `is_prefix` on all whose names begin with it."""

    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.is_prefix:
            return f"{self.operation} on every {self.kind} that begins with {self.name}"
        return f"{self.operation} on {f'all {self.kind}s' if self.name == ALL else f'{self.kind} {self.name}'}"


_Names = Sequence[str]


def needed(purpose: Purpose, groups: Sequence[str] = (), topics: Sequence[str] = ()) -> tuple[Acl, ...]:
    """The fewest ACLs for `purpose` on these groups and topics; none named: on all of them.

    In Kafka READ, WRITE and ALTER imply DESCRIBE. An export lists and describes; a reset sends AlterShareGroupOffsets
    (READ on group and topic) and looks into the state topic. A migration does the same on the target cluster; a
    MirrorMaker checkpoint topic that it reads is one of `topics`. An expansion sends CreatePartitions (ALTER on the
    topic) and asks where groups are and begin. Dead-letter topics are read, and looked for in the groups'
    configurations; a topic sink writes to `topics`, which are there, and to its topic of positions."""
    wanted = _WANTED[purpose](tuple(groups) or (ALL,), tuple(topics) or (ALL,))
    covered = {(acl.operation, acl.kind) for acl in wanted if acl.name == ALL}
    return tuple(acl for acl in wanted if acl.name == ALL or (acl.operation, acl.kind) not in covered)


def _each(operation: str, kind: str, names: _Names) -> list[Acl]:
    return [Acl(operation, kind, name) for name in dict.fromkeys(names)]


def _seen(groups: _Names) -> list[Acl]:
    """Groups with their configurations."""
    return [*_each("DESCRIBE", "group", groups), *_each("DESCRIBE_CONFIGS", "group", groups)]


def _offsets(groups: _Names, topics: _Names) -> list[Acl]:
    return [*_seen(groups), *_each("DESCRIBE", "topic", topics)]


def _reset(groups: _Names, topics: _Names) -> list[Acl]:
    return [*_each("READ", "group", groups), *_each("READ", "topic", [*topics, STATE_TOPIC])]


def _topic_sink(_: _Names, topics: _Names) -> list[Acl]:
    written = [*topics, POSITIONS_TOPIC]
    return [
        Acl("WRITE", "transactional-id", TRANSACTIONAL_IDS, is_prefix=True),
        *_each("WRITE", "topic", written),
        *_each("DESCRIBE_CONFIGS", "topic", written),
        Acl("READ", "topic", POSITIONS_TOPIC),
    ]


_WANTED: Final[Mapping[Purpose, Callable[[_Names, _Names], list[Acl]]]] = {
    Purpose.EXPORT: lambda groups, topics: [Acl("READ", "topic", STATE_TOPIC), *_offsets(groups, topics)],
    Purpose.OFFSETS: lambda groups, topics: _offsets(groups, [*topics, STATE_TOPIC]),
    Purpose.METADATA: lambda _, __: [Acl("READ", "topic", _GROUPS_TOPIC)],
    Purpose.DEAD_LETTERS: lambda groups, topics: [*_seen(groups), *_each("READ", "topic", topics)],
    Purpose.LEDGER: lambda groups, topics: [*_each("DESCRIBE", "group", groups), *_each("DESCRIBE", "topic", topics)],
    Purpose.TOPIC_SINK: _topic_sink,
    Purpose.RESET: _reset,
    Purpose.MIGRATION: _reset,
    Purpose.EXPANSION: lambda groups, topics: [*_seen(groups), *_each("ALTER", "topic", topics)],
}


def command(acl: Acl, principal: str, bootstrap_servers: str, *, is_secured: bool) -> str:
    """The command line that grants `acl`. `is_secured`: the administrator needs a client configuration."""
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers]
    words += ["--command-config", "admin.properties"] if is_secured else []
    words += ["--add", "--allow-principal", principal, "--operation", _WORDS[acl.operation]]
    words += ["--resource-pattern-type", "prefixed"] if acl.is_prefix else []
    return shlex.join([*words, f"--{acl.kind}", acl.name])
