"""Queries of the history by name: a record's fate, archived records. Errors about unknown names list near ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, changes_of, known_states_of
from acktrail.history.history_completeness import NotedGaps, dropped_gap, noted_gaps, read_completeness
from acktrail.history.history_tables import CHANGES, HELD, saved_rows
from acktrail.history.no_record_offsets import changes_of_records, no_record_offsets
from acktrail.history.saved_states import RECORDS_USED
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import HistoryCompleteness, OffsetStatusKind, StatusChange, UnknownReason, status_at
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.record_history import (
    ArchivedRange,
    RecordHistory,
    UnknownPeriod,
    archived_now,
    archived_ranges,
    history_without_changes,
    record_history,
)
from acktrail.replay.time_buckets import RATE_INPUTS, partial_rates, sum_rates
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, all_of, one_of
from acktrail.tables.records.record_files import DROPPED_BEFORE

_BY_GAPS: Final = frozenset({UnknownReason.GAP, UnknownReason.EARLIER})
"""Reasons behind which a retention may be."""
_ADDRESS: Final = ("group_id", "topic_id", "partition", "state_partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicName:
    """A topic id with its name and status; both None for an id that no listing of topics ever had."""

    topic_id: str
    topic: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordInstance:
    """The fate of a record of one topic id, from the records of one state partition. More than one: the topic was
    recreated, or the share partition has records on two state partitions."""

    topic: TopicName
    state_partition: int
    history: RecordHistory


class HistoryReader:
    """Reads the history in `tables`. Raises ConfigurationError (there is none)."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        snapshot = tables.snapshot(CHANGES)
        if snapshot is None:
            raise ConfigurationError(
                f"no history in the tables at {tables.root}",
                hint="run `acktrail run history` (or `acktrail run reconcile`) after an export",
            )
        self.snapshot: TableSnapshot = snapshot
        self.kept_from_ms: int | None = snapshot.transaction_version(DROPPED_BEFORE)
        """Changes before this time (ms since the epoch) are not kept; None: all are."""

    @cached_property
    def is_current(self) -> bool:
        """Whether every exported state record is in the history."""
        records = self.tables.snapshot("state_records")
        used = self.tables.transaction_version(HELD, RECORDS_USED) or 0
        return records is None or records.last_change <= used <= records.version

    @cached_property
    def topics(self) -> Mapping[str, TopicName]:
        """Every topic id that a listing had."""
        rows = self.tables.read("topics", columns=["topic_id", "topic", "status"]).to_pylist()
        return {row["topic_id"]: TopicName(**row) for row in rows}

    def topic(self, topic_id: str) -> TopicName:
        """What is known of a topic id."""
        return self.topics.get(topic_id, TopicName(topic_id=topic_id))

    def ids_of(self, topic: str) -> list[str]:
        """The ids that a name ever had; a name that no topic had is taken for an id."""
        return [each.topic_id for each in self.topics.values() if each.topic == topic] or [topic]

    def instances(self, group_id: str, topic: str, partition: int, offset: int) -> tuple[RecordInstance, ...]:
        """What became of one record within a group; `topic` is a name or a topic id. Reads only the files and row
        groups whose least and greatest values allow the record. Where the retention dropped all changes of the record,
        its history is the status that it has since. Raises UnknownName (the history does not have the
        group, or the topic or partition within it), InputError (nothing at all is known of the share partition)."""
        about = self._about(group_id, topic, partition)
        last = pc.field("last_offset")
        where = all_of(about, pc.field("first_offset") <= offset, last.is_null() | (last >= offset))
        rows = self.snapshot.read(columns=CHANGE_COLUMNS.names, where=where)
        of_place: defaultdict[tuple[str, int], list[StatusChange]] = defaultdict(list)
        for change in sorted(changes_of(rows), key=lambda change: change.at.offset):
            of_place[change.key.topic_id, change.at.state_partition].append(change)
        histories = {
            place: history
            for place, changes in of_place.items()
            if (history := record_history(offset, changes, self.kept_from_ms)) is not None
        }
        if self.kept_from_ms is not None:
            histories |= self._without_changes(about, offset, histories, self.kept_from_ms)
        if not histories:
            self._raise_unknown(group_id, topic, partition)
        doubtful = {number for (_, number), history in histories.items() if _reasons(history) & _BY_GAPS}
        gaps = noted_gaps(self.tables, sorted(doubtful)) if doubtful else {}
        found = (
            RecordInstance(
                topic=self.topic(topic_id), state_partition=number, history=_explained(history, number, gaps)
            )
            for (topic_id, number), history in histories.items()
        )
        return tuple(sorted(found, key=_begun))

    def archived(self, group_id: str, since_ms: int | None = None) -> list[ArchivedRange]:
        """The records that a group archived, oldest first; `since_ms`: at or after that time, by the broker's clock.
        Raises UnknownName (the history does not have the group)."""
        return self._since(archived_ranges(self._archivings(group_id)), since_ms)

    def archived_now(self, group_id: str, since_ms: int | None = None) -> list[ArchivedRange]:
        """Those of `archived` that were not handed out again since, each record once. Raises as `archived`."""
        return self._since(archived_now(self._archivings(group_id)), since_ms)

    def _archivings(self, group_id: str) -> list[StatusChange]:
        archived, before = int(DeliveryState.ARCHIVED), pc.field("before_state")
        # What ``archived_ranges`` needs: changes to and from archived, and from an unknown status.
        is_needed = (pc.field("delivery_state") == archived) | (before == archived)
        is_needed |= pc.field("before_standing") == OffsetStatusKind.UNKNOWN.value
        rows = self.snapshot.read(columns=CHANGE_COLUMNS.names, where=(pc.field("group_id") == group_id) & is_needed)
        if not rows.num_rows:
            self.known_partitions(group_id)
        return sorted(changes_of(rows), key=_log_order)

    def _since(self, ranges: Iterable[ArchivedRange], since_ms: int | None) -> list[ArchivedRange]:
        found = self._of_records(ranges)
        times = ((each.at.timestamp_ms, each) for each in found)
        kept = [each for time, each in times if since_ms is None or time is None or time >= since_ms]
        return sorted(kept, key=lambda each: (each.at.timestamp_ms or 0, each.key, each.first_offset))

    def _of_records(self, found: Iterable[ArchivedRange]) -> Iterator[ArchivedRange]:
        """`found` without the offsets that are known to be no records."""
        none = no_record_offsets(self.tables)
        for each in found:
            own = none.get((each.key.group_id, each.key.topic_id, each.key.partition), OffsetRanges())
            for first, last in own.outside(each.first_offset, each.last_offset):
                yield replace(each, first_offset=first, last_offset=last)

    def rates(
        self,
        every_ms: int,
        *,
        group_id: str | None = None,
        topic: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> pa.Table:
        """Rows of ``time_buckets.RATES``: intervals of `every_ms`, from `since_ms` on, before `until_ms`. Raises
        UnknownName (the history does not have the group, or the topic within it)."""
        time = pc.field("record_timestamp_ms")
        where = all_of(
            self._about(group_id, topic),
            None if since_ms is None else time >= since_ms,
            None if until_ms is None else time < until_ms,
        )
        batches = self.snapshot.batches(columns=RATE_INPUTS, where=where)
        pieces, none = map(pa.Table.from_batches, ([batch] for batch in batches)), no_record_offsets(self.tables)
        found = sum_rates(partial_rates(changes_of_records(piece, none), every_ms) for piece in pieces)
        if not found.num_rows:
            self.known_partitions(group_id, topic)
        return found

    def completeness(
        self, group_id: str | None = None, *, topic: str | None = None, partition: int | None = None
    ) -> HistoryCompleteness:
        """What the history lacks of the share partitions of a group, a topic (name or id) and a partition; None: all. A
        share partition without any exported record is in no answer: it was created and deleted within a gap."""
        return read_completeness(self.tables, self._about(group_id, topic, partition), is_current=self.is_current)

    def known_partitions(self, group_id: str | None, topic: str | None = None) -> pa.Table:
        """Topic id, partition and state partition of every share partition of a group and a topic (name or id), also of
        those deleted; None: of all. Raises UnknownName (there is none)."""
        rows = self.tables.read(HELD, columns=list(_ADDRESS), where=pc.field("group_id").is_valid())
        if group_id is not None:
            groups, rows = rows["group_id"], rows.filter(pc.field("group_id") == group_id)
            if not rows.num_rows:
                raise UnknownName("share group", group_id, known=groups.unique().to_pylist())
        if topic is not None:
            topics, rows = rows["topic_id"], rows.filter(one_of("topic_id", self.ids_of(topic)))
            if not rows.num_rows:
                names = {self.topic(topic_id).topic or topic_id for topic_id in topics.unique().to_pylist()}
                where = "" if group_id is None else f" of share group {group_id!r}"
                raise UnknownName(f"topic{where}", topic, known=sorted(names))
        return rows

    def _about(
        self, group_id: str | None = None, topic: str | None = None, partition: int | None = None
    ) -> pc.Expression | None:
        """The rows about the share partitions of a group, a topic (name or id) and a partition; None: all rows."""
        return all_of(
            None if group_id is None else pc.field("group_id") == group_id,
            None if topic is None else one_of("topic_id", self.ids_of(topic)),
            None if partition is None else pc.field("partition") == partition,
        )

    def _without_changes(
        self, about: pc.Expression, offset: int, known: Collection[tuple[str, int]], kept_from_ms: int
    ) -> dict[tuple[str, int], RecordHistory]:
        """By topic id and state partition, other than those `known`: the status of an offset in the saved states, which
        were made from the changes that are not kept, too."""
        rows = saved_rows(self.tables, about)
        found: dict[tuple[str, int], RecordHistory] = {}
        for number, (key, state) in zip(rows["state_partition"].to_pylist(), known_states_of(rows), strict=True):
            if (key.topic_id, number) not in known:
                status = status_at(state, offset)
                found[key.topic_id, number] = history_without_changes(offset, status, kept_from_ms)
        return found

    def _raise_unknown(self, group_id: str, topic: str, partition: int) -> None:
        known = sorted(set(self.known_partitions(group_id, topic)["partition"].to_pylist()))
        if partition not in known:
            raise UnknownName("partition", f"{topic}:{partition}", nearest=[f"{topic}:{known[-1]}"])
        raise InputError(
            f"there are no records about partition {partition} of topic {topic!r} in share group {group_id!r}",
            hint="no record of it could be read",
            data={"topic_ids": self.ids_of(topic)},
        )


def _reasons(history: RecordHistory) -> set[UnknownReason]:
    return {period.reason for period in history.unknown_periods}


def _explained(history: RecordHistory, state_partition: int, gaps: NotedGaps) -> RecordHistory:
    """`history` where missing records that the retention dropped are named so."""

    def explained(period: UnknownPeriod) -> UnknownPeriod:
        first = None if period.since is None else period.since.offset
        gap = dropped_gap(gaps, state_partition, period.reason, first, period.until)
        return period if gap is None else replace(period, reason=UnknownReason.DROPPED)

    return replace(history, unknown_periods=tuple(map(explained, history.unknown_periods)))


def _log_order(change: StatusChange) -> tuple[int, int, int]:
    return (change.at.state_partition, change.at.offset, change.first_offset)


def _begun(instance: RecordInstance) -> tuple[Any, ...]:
    """By the time that the first record shows; one without a time comes first."""
    since = next((found.since for found in instance.history.intervals if found.since is not None), None)
    return (-1 if since is None or since.timestamp_ms is None else since.timestamp_ms, instance.state_partition)
