"""Dead-letter records of share groups (KIP-1191) beside the offsets that the history shows as archived."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from acktrail.model.offset_ranges import OffsetRanges

TOPIC_OF_GROUP: Final = "errors.deadletterqueue.topic.name"
"""The configuration of a share group that names its dead-letter topic."""
TOPIC_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
"""The configuration of a broker with which the name of every dead-letter topic has to begin."""


def dropped_letters(topic: str | None, prefix: str | None) -> str | None:
    """Why brokers drop the dead letters of a group that names `topic`; None: they do not, or `prefix` is not known.
    They archive the records all the same (Kafka class ``ShareGroupDLQStateManager``)."""
    if not topic or prefix is None or topic.startswith(prefix):
        return None
    return f"dead letters are dropped: the topic {topic!r} does not begin with {prefix!r}, the brokers' {TOPIC_PREFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDeadLetter:
    """What a broker wrote of a record that a share group gave up: the record's address, by the topic's name (its id
    where the broker did not know a name), and why. `delivery_count` and `message` None: the broker did not write it."""

    group_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCounts:
    """Numbers of one share partition: archived = with_record + without_record, and records = with_record + not_archived
    + repeated. `records` are dead-letter records, `repeated` those beyond the first of an offset, the others are
    offsets. None: not known."""

    archived: int | None
    records: int
    repeated: int
    with_record: int | None
    without_record: int | None
    not_archived: int | None


class DeadLetterDoubt(StrEnum):
    """Why a number of ``DeadLetterCounts`` is not known; beside a doubt the others are lower bounds."""

    HISTORY = "history"
    """State records are missing: a record that is not seen as archived may be."""
    LETTERS = "letters"
    """Dead-letter records are missing, or none of the group is exported: an archived record may have one."""
    TOPIC = "topic"
    """Several topics had the name, one after the other: dead-letter records are of one of them."""
    NAME = "name"
    """No listing of topics had the name: whose archived offsets to compare with is not known."""


_NOT_KNOWN: Final = {
    DeadLetterDoubt.HISTORY: ("not_archived",),
    DeadLetterDoubt.LETTERS: ("without_record",),
    DeadLetterDoubt.TOPIC: ("with_record", "without_record", "not_archived"),
    DeadLetterDoubt.NAME: ("archived", "with_record", "without_record", "not_archived"),
}


def doubted(counts: DeadLetterCounts, doubts: Collection[DeadLetterDoubt]) -> DeadLetterCounts:
    """`counts` without the numbers that `doubts` leave unknown."""
    unknown: dict[str, Any] = dict.fromkeys(name for doubt in doubts for name in _NOT_KNOWN[doubt])
    return replace(counts, **unknown)


def match_dead_letters(archived: Iterable[tuple[int, int]], offsets: Iterable[int]) -> DeadLetterCounts:
    """Compare `archived`, ranges of offsets with both ends inclusive that may overlap, with the `offsets` of
    dead-letter records, each in any order.

    Cost: O((r + d) log r) for r ranges and d records, however long the ranges are.
    """
    ranges, letters = OffsetRanges(), list(offsets)
    for first, last in archived:
        ranges.add(first, last)
    distinct = set(letters)
    found = sum(not any(ranges.outside(offset, offset)) for offset in distinct)
    total = sum(last - first + 1 for first, last in ranges)
    return DeadLetterCounts(
        archived=total,
        records=len(letters),
        repeated=len(letters) - len(distinct),
        with_record=found,
        without_record=total - found,
        not_archived=len(distinct) - found,
    )
