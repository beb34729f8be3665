"""The plan of an expansion: a value that says what more partitions would do to keys and groups, with a hash. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Final

from acktrail import __version__
from acktrail.change.planning.notices import Notice
from acktrail.change.planning.plan_file import checked_plan, plan_data, read_text
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.law.partition_ledger import expansion_id

PLAN_FORMAT: Final = "acktrail-expansion-plan"
PLAN_VERSION: Final = 1
_AGAIN: Final = "make a new plan: acktrail expand plan"


class ExpansionKind(StrEnum):
    """What a plan changes, as the audit has it."""

    EXPAND_TOPIC = "expand_topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnTopic:
    """A group that has a position in the topic. `begins_at`: where it begins in a partition in which it has none, by
    the configuration of a share group; None: not known, clients of other groups choose. `open_records`: its lag, of a
    share group as the broker counts it, of others from the committed offsets to the ends of the logs; `most_open` are
    the partitions with the most, each with its count. `unknown` counts partitions where it is not known."""

    group_id: str
    group_type: str
    is_ordered: bool
    begins_at: str | None
    open_records: int
    unknown: int
    most_open: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPlan:
    """`plan_hash` covers every other field. `settle_ms`: how long producers may use the old count. `moving`: the exact
    share of keys that change their partition, as 1/2; None: the mapping is not known. `is_compacted` None: the cluster
    does not say. Whether the `groups_not_asked` read the topic is not known."""

    topic: str
    topic_id: str
    old_count: int
    new_count: int
    key_mapping: KeyMapping
    moving: str | None
    settle_ms: int
    is_compacted: bool | None
    groups: tuple[GroupOnTopic, ...]
    groups_not_asked: tuple[str, ...]
    cluster_id: str
    release: str
    plan_id: str
    created_at_ms: int
    created_by: str
    requested_by: str
    reason: str
    notices: tuple[Notice, ...] = ()
    format: str = PLAN_FORMAT
    version: int = PLAN_VERSION
    kind: ExpansionKind = ExpansionKind.EXPAND_TOPIC  # a constant
    acktrail_version: str = __version__
    plan_hash: str = ""

    @property
    def refusals(self) -> tuple[Notice, ...]:
        """None: what may not be done has no plan."""
        return ()

    @property
    def event_id(self) -> str:
        """The name of the expansion in the tables."""
        return expansion_id(self.cluster_id, self.topic_id, self.old_count, self.new_count)

    @property
    def step(self) -> int:
        """Keys move between partitions that leave the same remainder by it."""
        return gcd(self.old_count, self.new_count)

    @property
    def moves_between_existing(self) -> bool:
        """Whether keys are known to move between partitions that were there before."""
        return self.moving is not None and self.step != self.old_count


def moving_share(old_count: int, new_count: int, mapping: KeyMapping) -> str | None:
    """The share of keys whose partition changes, for a mapping that takes a hash modulo the count; None: another one.

    Of the lcm(old, new) remainders that a hash can leave, those below `old_count` are the same by both counts, and no
    others: old / lcm = gcd / new of the keys stay. Exact for hashes that are equally frequent.

    >>> moving_share(2, 4, KeyMapping.MURMUR2), moving_share(2, 3, KeyMapping.CRC32)
    ('1/2', '2/3')
    """
    return None if mapping is KeyMapping.NONE else str(1 - Fraction(gcd(old_count, new_count), new_count))


def read_expansion_plan(file: Path) -> ExpansionPlan:
    """The plan in `file`. Raises MalformedFile: it cannot be read, or is no plan of an expansion. PlanStale: it is of
    another version, or it was edited."""
    return parse_expansion_plan(read_text(file, _AGAIN), str(file))


def parse_expansion_plan(text: str, where: str) -> ExpansionPlan:
    """The plan in `text`, which comes from `where`. Raises as `read_expansion_plan`."""
    data = plan_data(text, where, {PLAN_FORMAT: PLAN_VERSION}, again=_AGAIN, what="plan of an expansion")
    return checked_plan(ExpansionPlan, data, where, again=_AGAIN)
