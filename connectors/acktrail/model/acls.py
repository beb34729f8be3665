"""The ACLs that acktrail needs: the fewest with which an export, a reset, a migration or an expansion works, and as
command lines of Kafka's own tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.share_partition import STATE_TOPIC

ALL: Final = "*"
"""Every group, or every topic."""
_WORDS: Final = {"ALTER": "Alter", "READ": "Read", "DESCRIBE": "Describe", "DESCRIBE_CONFIGS": "DescribeConfigs"}
"""Operations as ``kafka-acls.sh`` names them."""


class Purpose(StrEnum):
    """What the ACLs are for: export and observation; reset of start offsets; a migration, on the target cluster; the
    expansion of a topic."""

    EXPORT = "export"
    RESET = "reset"
    MIGRATION = "migration"
    EXPANSION = "expansion"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """`operation` on the `kind` (``group`` or ``topic``) with this `name`, or ``ALL`` of them."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {f'all {self.kind}s' if self.name == ALL else f'{self.kind} {self.name}'}"


def needed(purpose: Purpose, groups: Sequence[str] = (), topics: Sequence[str] = ()) -> tuple[Acl, ...]:
    """The fewest ACLs for `purpose` on these groups and topics; none named: on all of them.

    In Kafka READ and ALTER imply DESCRIBE. An export lists and describes; a reset sends AlterShareGroupOffsets (READ on
    group and topic) and looks into the state topic. A migration does the same on the target cluster; a MirrorMaker
    checkpoint topic that it reads is one of `topics`. An expansion sends CreatePartitions (ALTER on the topic) and asks
    where groups are and begin."""
    of_groups, of_topics = tuple(groups) or (ALL,), tuple(topics) or (ALL,)
    seen = [Acl(operation, "group", name) for operation in ("DESCRIBE", "DESCRIBE_CONFIGS") for name in of_groups]
    if purpose is Purpose.EXPORT:
        wanted = [Acl("READ", "topic", STATE_TOPIC), *seen, *(Acl("DESCRIBE", "topic", name) for name in of_topics)]
    elif purpose is Purpose.EXPANSION:
        wanted = [*seen, *(Acl("ALTER", "topic", name) for name in of_topics)]
    else:
        wanted = [Acl("READ", "group", name) for name in of_groups]
        wanted += [Acl("READ", "topic", name) for name in dict.fromkeys((*of_topics, STATE_TOPIC))]
    covered = {(acl.operation, acl.kind) for acl in wanted if acl.name == ALL}
    return tuple(acl for acl in wanted if acl.name == ALL or (acl.operation, acl.kind) not in covered)


def command(acl: Acl, principal: str, bootstrap_servers: str, *, is_secured: bool) -> str:
    """The command line that grants `acl`. `is_secured`: the administrator needs a client configuration."""
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers]
    words += ["--command-config", "admin.properties"] if is_secured else []
    words += ["--add", "--allow-principal", principal, "--operation", _WORDS[acl.operation]]
    return shlex.join([*words, f"--{acl.kind}", acl.name])
