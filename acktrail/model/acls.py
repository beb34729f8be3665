"""The ACLs that acktrail needs: the fewest with which an export, a reset or what a branch adds works, and as command
lines of Kafka's own tool.
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
Names = Sequence[str]
"""Of groups, or of topics."""


class Purpose(StrEnum):
    """What the ACLs are for: export and observation; only observation; reset of start offsets; deletions of groups or
    of their offsets; configurations of groups. Branches have others (`purposes`)."""

    EXPORT = "export"
    OFFSETS = "offsets"
    RESET = "reset"
    DELETE_GROUPS = "delete-groups"
    DELETE_OFFSETS = "delete-offsets"
    GROUP_CONFIGS = "group-configs"


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

    In Kafka READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. An export lists
    and describes; a reset sends AlterShareGroupOffsets (READ on group and topic) and looks into the state topic. Raises
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


def reset(groups: Names, topics: Names) -> list[Acl]:
    """A start offset set, and looked up in the state topic."""
    return [*each("READ", "group", groups), *each("READ", "topic", [*topics, STATE_TOPIC])]


def _deletion(groups: Names, topics: list[Acl]) -> list[Acl]:
    """A deletion that says what it loses, and where the group would begin again."""
    own = [*each("DELETE", "group", groups), *each("DESCRIBE_CONFIGS", "group", groups)]
    return [*own, *topics, Acl("READ", "topic", STATE_TOPIC)]


def _configs(groups: Names, _topics: Names) -> list[Acl]:
    return [*each("DESCRIBE", "group", groups), *each("ALTER_CONFIGS", "group", groups)]


_WANTED: Final[Mapping[str, WantedAcls]] = {
    Purpose.EXPORT: lambda groups, topics: [Acl("READ", "topic", STATE_TOPIC), *_offsets(groups, topics)],
    Purpose.OFFSETS: lambda groups, topics: _offsets(groups, [*topics, STATE_TOPIC]),
    Purpose.RESET: reset,
    Purpose.DELETE_GROUPS: lambda groups, topics: _deletion(groups, each("DESCRIBE", "topic", topics)),
    Purpose.DELETE_OFFSETS: lambda groups, topics: _deletion(groups, each("READ", "topic", topics)),
    Purpose.GROUP_CONFIGS: _configs,
}


def command(acl: Acl, principal: str, bootstrap_servers: str, *, is_secured: bool) -> str:
    """The command line that grants `acl`; ``kafka-acls.sh`` writes DESCRIBE_CONFIGS as DescribeConfigs. `is_secured`:
    the administrator needs a client configuration."""
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers]
    words += ["--command-config", "admin.properties"] if is_secured else []
    words += ["--add", "--allow-principal", principal, "--operation", acl.operation.title().replace("_", "")]
    words += ["--resource-pattern-type", "prefixed"] if acl.is_prefix else []
    return shlex.join([*words, f"--{acl.kind}", acl.name])
