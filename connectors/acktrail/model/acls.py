"""The ACLs that acktrail needs: the fewest with which a connector, a reset, a migration or a branch works, and as
command lines of Kafka's own tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.branches import loaded
from acktrail.model.share_partition import STATE_TOPIC

ALL: Final = "*"
"""Every group, or every topic."""
_GROUPS_TOPIC: Final = "__consumer_offsets"
POSITIONS_TOPIC: Final = "acktrail-positions"
"""Where a topic sink keeps its positions, unless its configuration says otherwise."""
TRANSACTIONAL_IDS: Final = "acktrail/"
"""Begins every transactional id of a topic sink."""
Names = Sequence[str]
"""Of groups, or of topics."""


class Purpose(StrEnum):
    """What the ACLs are for: export and observation; the sources of offsets, of group metadata and of dead letters, and
    the topic sink; reset of start offsets; a migration, on the target cluster. Branches have others (`purposes`)."""

    EXPORT = "export"
    OFFSETS = "offsets"
    METADATA = "metadata"
    DEAD_LETTERS = "dead-letters"
    TOPIC_SINK = "topic-sink"
    RESET = "reset"
    MIGRATION = "migration"


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


WantedAcls = Callable[[Names, Names], list[Acl]]
"""What is needed on these groups and topics."""


def purposes() -> tuple[str, ...]:
    """What ACLs can be asked for."""
    return tuple(map(str, _wanted()))


def _wanted() -> Mapping[str, WantedAcls]:
    """By purpose, those of branches among them (`acls` of `acktrail.branches.Branch`)."""
    return {**_WANTED, **{purpose: wanted for own in loaded("acls") for purpose, wanted in own.items()}}


def needed(purpose: str, groups: Sequence[str] = (), topics: Sequence[str] = ()) -> tuple[Acl, ...]:
    """The fewest ACLs for `purpose` on these groups and topics; none named: on all of them.

    In Kafka READ, WRITE and ALTER imply DESCRIBE. An export lists and describes; a reset sends AlterShareGroupOffsets
    (READ on group and topic) and looks into the state topic. A migration does the same on the target cluster; a
    MirrorMaker checkpoint topic that it reads is one of `topics`. Dead-letter topics are read, and looked for in the
    groups' configurations; a topic sink writes to `topics`, which are there, and to its topic of positions. Raises
    KeyError: nothing is known of `purpose`."""
    wanted = _wanted()[purpose](tuple(groups) or (ALL,), tuple(topics) or (ALL,))
    covered = {(acl.operation, acl.kind) for acl in wanted if acl.name == ALL}
    return tuple(acl for acl in wanted if acl.name == ALL or (acl.operation, acl.kind) not in covered)


def each(operation: str, kind: str, names: Names) -> list[Acl]:
    """`operation` on each of `names`."""
    return [Acl(operation, kind, name) for name in dict.fromkeys(names)]


def seen(groups: Names) -> list[Acl]:
    """Groups with their configurations."""
    return [*each("DESCRIBE", "group", groups), *each("DESCRIBE_CONFIGS", "group", groups)]


def _offsets(groups: Names, topics: Names) -> list[Acl]:
    return [*seen(groups), *each("DESCRIBE", "topic", topics)]


def _reset(groups: Names, topics: Names) -> list[Acl]:
    return [*each("READ", "group", groups), *each("READ", "topic", [*topics, STATE_TOPIC])]


def _topic_sink(_: Names, topics: Names) -> list[Acl]:
    written = [*topics, POSITIONS_TOPIC]
    return [
        Acl("WRITE", "transactional-id", TRANSACTIONAL_IDS, is_prefix=True),
        *each("WRITE", "topic", written),
        *each("DESCRIBE_CONFIGS", "topic", written),
        Acl("READ", "topic", POSITIONS_TOPIC),
    ]


_WANTED: Final[Mapping[str, WantedAcls]] = {
    Purpose.EXPORT: lambda groups, topics: [Acl("READ", "topic", STATE_TOPIC), *_offsets(groups, topics)],
    Purpose.OFFSETS: lambda groups, topics: _offsets(groups, [*topics, STATE_TOPIC]),
    Purpose.METADATA: lambda _, __: [Acl("READ", "topic", _GROUPS_TOPIC)],
    Purpose.DEAD_LETTERS: lambda groups, topics: [*seen(groups), *each("READ", "topic", topics)],
    Purpose.TOPIC_SINK: _topic_sink,
    Purpose.RESET: _reset,
    Purpose.MIGRATION: _reset,
}


def command(acl: Acl, principal: str, bootstrap_servers: str, *, is_secured: bool) -> str:
    """The command line that grants `acl`; ``kafka-acls.sh`` writes DESCRIBE_CONFIGS as DescribeConfigs. `is_secured`:
    the administrator needs a client configuration."""
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers]
    words += ["--command-config", "admin.properties"] if is_secured else []
    words += ["--add", "--allow-principal", principal, "--operation", acl.operation.title().replace("_", "")]
    words += ["--resource-pattern-type", "prefixed"] if acl.is_prefix else []
    return shlex.join([*words, f"--{acl.kind}", acl.name])
