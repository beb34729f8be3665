"""The plan of an expansion: what more partitions would do to keys and groups, what forbids it, what to know. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Final

from acktrail.change.planning.change_plan import ChangePlan, Found, Notice, Severity
from acktrail_expansion.law.order import KeyMapping, expansion_id
from acktrail_expansion.looks.group_positions import SHARE
from acktrail_expansion.words import counted

EXPAND_TOPIC: Final = "expand_topic"
"""The kind of its plans."""
MOST_PARTITIONS: Final = 10_000
"""Of one topic. Kafka has no limit, and partitions cannot be taken away again."""
_BEGINS_AT_EARLIEST: Final = "4.4 or later"
"""The release from which on share groups begin at the first record of a partition that was added (KAFKA-20742)."""


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
class ExpansionPlan(ChangePlan):
    """`settle_ms`: how long producers may use the old count. `moving`: the exact share of keys that change their
    partition, as 1/2; None: the mapping is not known. `is_compacted` None: the cluster does not say. `readers` are the
    groups that read the topic; whether the `groups_not_asked` do is not known."""

    topic: str
    topic_id: str
    old_count: int
    new_count: int
    key_mapping: KeyMapping
    moving: str | None
    settle_ms: int
    is_compacted: bool | None
    readers: tuple[GroupOnTopic, ...]
    groups_not_asked: tuple[str, ...]

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


def refusals_of(
    topic: str, old_count: int, new_count: int, *, is_internal: bool, may_alter: bool | None
) -> Iterator[Notice]:
    """Why the topic may not have `new_count` partitions. `may_alter` None: the cluster does not say."""
    has = f"it has {counted(old_count, 'partition')}, and Kafka takes none away"
    cases = (
        ("internal_topic", is_internal, "Kafka finds records of internal topics by the number of partitions"),
        ("not_more_partitions", new_count <= old_count, f"{new_count} partitions would be no more: {has}"),
        ("too_many_partitions", new_count > MOST_PARTITIONS, f"{new_count} are more than {MOST_PARTITIONS}: {has}"),
        ("unauthorized_topic", may_alter is False, "ALTER on the topic is missing"),
    )
    return (Notice(Severity.REFUSAL, rule, text, topic=topic) for rule, applies, text in cases if applies)


def notices_on(plan: ExpansionPlan) -> Iterator[Notice]:
    """Everything there is to say about an expansion that may be done, in no order."""
    yield from (Notice(*found, topic=plan.topic) for found in _about_topic(plan))
    for group in plan.readers:
        yield from (Notice(*found, group_id=group.group_id) for found in _about_group(group, plan.release))
    for group_id in plan.groups_not_asked:
        text = "its coordinator does not answer: it is not known whether the group reads the topic"
        yield Notice(Severity.WARNING, "group_not_asked", text, group_id=group_id)


def _about_topic(plan: ExpansionPlan) -> Iterator[Found]:
    if plan.key_mapping is KeyMapping.NONE:
        text = "it is not known how producers choose partitions (ACKTRAIL_KEY_MAPPINGS): any key may move anywhere"
        yield Severity.WARNING, "unknown_key_mapping", text
    if plan.moves_between_existing:
        nearest = plan.old_count * -(-plan.new_count // plan.old_count)
        text = f"keys also move between partitions that are there; with {nearest} they would move to new ones alone"
        text = f"{plan.new_count} is no multiple of {plan.old_count}: {text}"
        yield Severity.SERIOUS, "keys_move_between_existing", text
    if plan.is_compacted:
        text = (
            "it is compacted, in each partition alone: the last value that a moved key had in its old partition stays "
            "there, also after a tombstone, and who reads from the beginning may take it for the newest"
        )
        yield Severity.SERIOUS, "old_values_stay", text


def _about_group(group: GroupOnTopic, release: str) -> Iterator[Found]:
    is_share = group.group_type == SHARE
    if not is_share or (group.begins_at is None and release != _BEGINS_AT_EARLIEST):
        setting = "share.auto.offset.reset of the group" if is_share else "auto.offset.reset of its clients"
        text = f"{setting} is not known: with latest it may skip first records of the new partitions"
        yield Severity.WARNING, "may_skip_first_records", text
    elif group.begins_at == "latest" and release != _BEGINS_AT_EARLIEST:
        text = "share.auto.offset.reset is latest: it will skip the first records of the new partitions (KAFKA-20742)"
        yield Severity.SERIOUS, "skips_first_records", text
    if group.open_records and group.is_ordered:
        text = f"{counted(group.open_records, 'record')} not finished, and the group relies on the order of keys"
        yield Severity.SERIOUS, "open_before_expansion", f"{text}: stop producers, and let it finish them first"
