"""Exported dead-letter records of share groups beside the history: those of one record, and counts of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.history.history_reader import HistoryReader, TopicName
from acktrail.model.offset_changes import HistoryCompleteness
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.table_snapshot import all_of, one_of

_TABLE: Final = "dead_letter_records"
_LETTER: Final = ("dlq_topic", "dlq_partition", "dlq_offset", "timestamp_ms", "delivery_count", "message")
_LOG: Final = ("dlq_topic_id", "dlq_topic", "dlq_partition")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedLetter:
    """A dead-letter record: where it is, the broker's time, and what it says. `is_certain`: no other topic had the
    name, so that it is of the topic that was asked for."""

    dlq_topic: str
    dlq_partition: int
    dlq_offset: int
    timestamp_ms: int
    delivery_count: int | None
    message: str | None
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLetters:
    """Counts of one share partition, and why some are not known. `topic_id` None: no topic of this name is known."""

    topic: str | None
    topic_id: str | None
    partition: int
    counts: DeadLetterCounts
    doubts: tuple[DeadLetterDoubt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLetters:
    """Offsets of a log of dead letters, up to its last row, that are in no row: Kafka pruned them before they were
    read, or they are ends of transactions."""

    dlq_topic: str
    dlq_partition: int
    offsets: int


class DeadLetterReader:
    """Reads ``dead_letter_records`` beside `history`."""

    def __init__(self, history: HistoryReader) -> None:
        self._history, self._tables = history, history.tables

    @property
    def is_exported(self) -> bool:
        """Whether any dead-letter topic was ever exported into these tables."""
        return self._tables.exists(_TABLE)

    def of_record(self, group_id: str, topic: TopicName, partition: int, offset: int) -> tuple[ExportedLetter, ...]:
        """The dead-letter records of one record within a group, in the order of their writing. None is not the same as
        not exported: see `is_exported`."""
        names = sorted({topic.topic or topic.topic_id, topic.topic_id})
        is_certain = topic.topic is None or len(self._history.ids_of(topic.topic)) == 1
        where = all_of(
            pc.field("group_id") == group_id,
            one_of("topic", names),
            pc.field("partition") == partition,
            pc.field("offset") == offset,
        )
        rows = self._tables.read(_TABLE, columns=list(_LETTER), where=where).to_pylist()
        rows.sort(key=lambda row: (row["timestamp_ms"], row["dlq_partition"], row["dlq_offset"]))
        return tuple(ExportedLetter(**row, is_certain=is_certain) for row in rows)

    def of_group(self, group_id: str) -> tuple[PartitionLetters, ...]:
        """Counts of every share partition of a group with an archived offset or a dead-letter record. Raises
        UnknownName (the history does not have the group)."""
        archived: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for each in self._history.archived(group_id):
            archived[each.key.topic_id, each.key.partition].append((each.first_offset, each.last_offset))
        letters = self._letters(group_id)
        lacks_letters = bool(self.missing(group_id)) or not letters
        completeness = self._history.completeness(group_id)
        found = [
            self._counted(place, archived.get(place, []), letters, completeness, group_id, lacks_letters=lacks_letters)
            for place in {*archived, *self._places(letters)}
        ]
        unnamed = [
            PartitionLetters(
                topic=topic,
                topic_id=None,
                partition=partition,
                counts=doubted(match_dead_letters((), offsets), [DeadLetterDoubt.NAME]),
                doubts=(DeadLetterDoubt.NAME,),
            )
            for (topic, partition), offsets in letters.items()
            if not self._ids(topic)
        ]
        return tuple(sorted((*found, *unnamed), key=lambda row: (row.topic or "", row.topic_id or "", row.partition)))

    def missing(self, group_id: str) -> tuple[MissingLetters, ...]:
        """Offsets that are in no row, of every log that has a dead-letter record of the group."""
        own = self._tables.read(_TABLE, columns=["dlq_topic_id"], where=pc.field("group_id") == group_id)
        ids = pc.unique(own["dlq_topic_id"]).to_pylist()
        rows = self._tables.read(_TABLE, columns=[*_LOG, "dlq_offset"], where=one_of("dlq_topic_id", ids))
        logs = rows.group_by(list(_LOG), use_threads=False).aggregate([("dlq_offset", "max"), ("dlq_offset", "count")])
        found = (
            MissingLetters(
                dlq_topic=log["dlq_topic"],
                dlq_partition=log["dlq_partition"],
                offsets=log["dlq_offset_max"] + 1 - log["dlq_offset_count"],
            )
            for log in logs.to_pylist()
        )
        return tuple(sorted((each for each in found if each.offsets), key=lambda each: (each.dlq_topic, each.offsets)))

    def unreadable(self) -> int:
        """How many rows have no address of a record: their headers could not be read, or are no dead letter's."""
        rows = self._tables.read(_TABLE, columns=["dlq_offset"], where=pc.field("group_id").is_null())
        return int(rows.num_rows)

    def _letters(self, group_id: str) -> dict[tuple[str, int], list[int]]:
        """Offsets of the dead-letter records of a group, by the topic's name or id and partition."""
        where = pc.field("group_id") == group_id
        found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for row in self._tables.read(_TABLE, columns=["topic", "partition", "offset"], where=where).to_pylist():
            found[row["topic"], row["partition"]].append(row["offset"])
        return dict(found)

    def _ids(self, topic: str) -> list[str]:
        """The topic ids that a broker's name for a topic may stand for."""
        return [each for each in self._history.ids_of(topic) if each in self._history.topics]

    def _places(self, letters: Mapping[tuple[str, int], Any]) -> set[tuple[str, int]]:
        return {(topic_id, partition) for topic, partition in letters for topic_id in self._ids(topic)}

    def _counted(
        self,
        place: tuple[str, int],
        archived: Collection[tuple[int, int]],
        letters: Mapping[tuple[str, int], list[int]],
        completeness: HistoryCompleteness,
        group_id: str,
        *,
        lacks_letters: bool,
    ) -> PartitionLetters:
        topic_id, partition = place
        topic = self._history.topic(topic_id)
        names = {topic.topic or topic_id, topic_id}
        own = [offset for name in names for offset in letters.get((name, partition), ())]
        key = SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=partition)
        is_shared = topic.topic is not None and len(self._history.ids_of(topic.topic)) > 1
        is_known = key in completeness.state_partitions and completeness.of(key).is_complete
        doubts = [
            *([] if is_known else [DeadLetterDoubt.HISTORY]),
            *([DeadLetterDoubt.LETTERS] if lacks_letters else []),
            *([DeadLetterDoubt.TOPIC] if is_shared and own else []),
        ]
        counts = doubted(match_dead_letters(archived, own), doubts)
        return PartitionLetters(
            topic=topic.topic, topic_id=topic_id, partition=partition, counts=counts, doubts=tuple(doubts)
        )


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
