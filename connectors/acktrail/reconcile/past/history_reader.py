"""Queries of the history by name: a record's fate, archived records, and how complete the history is.

Errors about unknown names list near ones. The sources of completeness: rows of ``delivery_history`` to and from
``unknown``; ``held_states``, for share partitions without such a row; ``export_ranges``, for gaps with no record behind
them yet and what the retention dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, reduce
from operator import or_
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import DROPPED_BY_RETENTION
from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.format.columns.model_values import CHANGE_COLUMNS, changes_of, known_states_of, share_partition_of
from acktrail.model.batches import DeliveryState
from acktrail.model.record_history import (
    ArchivedRange,
    RecordHistory,
    UnknownPeriod,
    archived_ranges,
    history_without_changes,
    record_history,
)
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition
from acktrail.model.status_changes import (
    Cause,
    HistoryCompleteness,
    MissingRecords,
    OffsetStatusKind,
    RecordPosition,
    StatusChange,
    UnknownReason,
    status_ranges,
)
from acktrail.reconcile.past.history_tables import CHANGES, HELD, change_positions, saved_rows
from acktrail.reconcile.past.saved_states import RECORDS_USED
from acktrail.replay.time_buckets import RATE_INPUTS, partial_rates, sum_rates
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, all_of
from acktrail.tables.exported.record_files import DROPPED_BEFORE

_NEAREST: Final = 3
_BY_GAPS: Final = frozenset({UnknownReason.GAP, UnknownReason.EARLIER})
"""Reasons behind which a retention may be."""
_ADDRESS: Final = ("group_id", "topic_id", "partition", "state_partition")
_EVENT: Final = (*KEY_COLUMNS, "state_partition", "record_offset", "cause", "record_timestamp_ms")
_WHOLE: Final = frozenset({Cause.SNAPSHOT, Cause.INITIALIZE, Cause.RESET, Cause.TOMBSTONE})
"""Records with the whole state: nothing is unknown after them."""
_GAP: Final = ("gap_first", "gap_last", "gap_reason")
_LOSS: Final = {Cause.GAP: UnknownReason.GAP, Cause.UNREADABLE: UnknownReason.UNREADABLE}


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
        self._tables = tables
        snapshot = tables.snapshot(CHANGES)
        if snapshot is None:
            raise ConfigurationError(
                f"no history in the tables at {tables.root}",
                hint="run `acktrail run history` (or `acktrail run reconcile`) after an export",
            )
        self.snapshot: TableSnapshot = snapshot
        self.kept_from_ms: int | None = snapshot.transaction_version(DROPPED_BEFORE)
        """Changes before this time (ms since the epoch) are not kept; None: all are."""

    @property
    def tables(self) -> Tables:
        """Where it is."""
        return self._tables

    @cached_property
    def is_current(self) -> bool:
        """Whether every exported state record is in the history."""
        records = self._tables.snapshot("state_records")
        used = self._tables.transaction_version(HELD, RECORDS_USED) or 0
        return records is None or records.last_change <= used <= records.version

    @cached_property
    def topics(self) -> Mapping[str, TopicName]:
        """Every topic id that a listing had."""
        rows = self._tables.read("topics", columns=["topic_id", "topic", "status"]).to_pylist()
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
        rows = self._changes(group_id, self.ids_of(topic), partition, offset, offset)
        of_place: defaultdict[tuple[str, int], list[StatusChange]] = defaultdict(list)
        for change in sorted(changes_of(rows), key=lambda change: change.at.offset):
            of_place[change.key.topic_id, change.at.state_partition].append(change)
        histories = {
            place: history
            for place, changes in of_place.items()
            if (history := record_history(offset, changes, self.kept_from_ms)) is not None
        }
        if self.kept_from_ms is not None:
            histories |= self._without_changes(group_id, topic, partition, offset, histories, self.kept_from_ms)
        if not histories:
            self._raise_unknown(group_id, topic, partition)
        doubtful = {number for (_, number), history in histories.items() if _reasons(history) & _BY_GAPS}
        gaps = noted_gaps(self._tables, sorted(doubtful)) if doubtful else {}
        found = (
            RecordInstance(
                topic=self.topic(topic_id), state_partition=number, history=_explained(history, number, gaps)
            )
            for (topic_id, number), history in histories.items()
        )
        return tuple(sorted(found, key=_begun))

    def archived(self, group_id: str, since_ms: int | None = None) -> list[ArchivedRange]:
        """What a group archived, oldest first; `since_ms`: at or after that time, by the broker's clock. Raises
        UnknownName (the history does not have the group)."""
        archived, before = int(DeliveryState.ARCHIVED), pc.field("before_state")
        # What ``archived_ranges`` needs: changes to and from archived, and from an unknown status.
        is_needed = (pc.field("delivery_state") == archived) | (before == archived)
        is_needed |= pc.field("before_standing") == OffsetStatusKind.UNKNOWN.value
        rows = self.snapshot.read(columns=CHANGE_COLUMNS.names, where=(pc.field("group_id") == group_id) & is_needed)
        if not rows.num_rows:
            self.known_partitions(group_id)
        found = archived_ranges(sorted(changes_of(rows), key=_log_order))
        times = ((each.at.timestamp_ms, each) for each in found)
        kept = [each for time, each in times if since_ms is None or time is None or time >= since_ms]
        return sorted(kept, key=lambda each: (each.at.timestamp_ms or 0, each.key, each.first_offset))

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
        UnknownName (the history does not have the group)."""
        time = pc.field("record_timestamp_ms")
        where = all_of(
            None if group_id is None else pc.field("group_id") == group_id,
            None if topic is None else pc.field("topic_id").isin(self.ids_of(topic)),
            None if since_ms is None else time >= since_ms,
            None if until_ms is None else time < until_ms,
        )
        batches = self.snapshot.batches(columns=RATE_INPUTS, where=where)
        found = sum_rates(partial_rates(pa.Table.from_batches([batch]), every_ms) for batch in batches)
        if group_id is not None and not found.num_rows:
            self.known_partitions(group_id)
        return found

    def completeness(
        self, group_id: str | None = None, *, topic: str | None = None, partition: int | None = None
    ) -> HistoryCompleteness:
        """What the history lacks of the share partitions of a group, a topic (name or id) and a partition; None: all. A
        share partition without any exported record is in no answer: it was created and deleted within a gap."""
        ids = None if topic is None else tuple(self.ids_of(topic))
        scope = HistoryScope(group_id=group_id, topic_ids=ids, partition=partition)
        return read_completeness(self._tables, scope, is_current=self.is_current)

    def known_partitions(self, group_id: str) -> pa.Table:
        """Topic id, partition and state partition of every share partition of a group, also of those deleted. Raises
        UnknownName (there is none)."""
        rows = self._tables.read(HELD, columns=list(_ADDRESS), where=pc.field("group_id") == group_id)
        if not rows.num_rows:
            groups = pc.unique(self._tables.read(HELD, columns=["group_id"])["group_id"]).drop_null().to_pylist()
            raise UnknownName("share group", group_id, nearest=get_close_matches(group_id, groups, n=_NEAREST))
        return rows

    def _changes(self, group_id: str, topic_ids: Sequence[str], partition: int, first: int, last: int) -> pa.Table:
        """Rows of ``CHANGE_COLUMNS`` about an offset from `first` to `last`."""
        topic_id = pc.field("topic_id")
        where = (
            (pc.field("group_id") == group_id)
            & (topic_id.isin(topic_ids) if topic_ids[1:] else topic_id == topic_ids[0])
            & (pc.field("partition") == partition)
            & (pc.field("first_offset") <= last)
            & (pc.field("last_offset") >= first)
        )
        return self.snapshot.read(columns=CHANGE_COLUMNS.names, where=where)

    def _without_changes(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int,
        known: Collection[tuple[str, int]],
        kept_from_ms: int,
    ) -> dict[tuple[str, int], RecordHistory]:
        """By topic id and state partition, other than those `known`: the status of an offset in the saved states, which
        were made from the changes that are not kept, too."""
        own = pc.field("topic_id").isin(self.ids_of(topic)) & (pc.field("partition") == partition)
        rows = saved_rows(self._tables, (pc.field("group_id") == group_id) & own)
        found: dict[tuple[str, int], RecordHistory] = {}
        for number, (key, state) in zip(rows["state_partition"].to_pylist(), known_states_of(rows), strict=True):
            if (key.topic_id, number) not in known:
                ranges = status_ranges(state)
                status = next(each.status for each in ranges if each.first_offset <= offset <= each.last_offset)
                found[key.topic_id, number] = history_without_changes(offset, status, kept_from_ms)
        return found

    def _raise_unknown(self, group_id: str, topic: str, partition: int) -> None:
        rows, ids = self.known_partitions(group_id).to_pylist(), self.ids_of(topic)
        known = sorted({row["partition"] for row in rows if row["topic_id"] in ids})
        if not known:
            names = sorted({self.topic(row["topic_id"]).topic or row["topic_id"] for row in rows})
            nearest = get_close_matches(topic, names, n=_NEAREST)
            raise UnknownName(f"topic of share group {group_id!r}", topic, nearest=nearest)
        if partition not in known:
            raise UnknownName("partition", f"{topic}:{partition}", nearest=[f"{topic}:{known[-1]}"])
        raise InputError(
            f"nothing is known of partition {partition} of topic {topic!r} in share group {group_id!r}",
            hint="no record of it could be read",
            data={"topic_ids": ids},
        )


def _reasons(history: RecordHistory) -> set[UnknownReason]:
    return {period.reason for period in history.unknown_periods}


def _explained(history: RecordHistory, state_partition: int, gaps: NotedGaps) -> RecordHistory:
    """`history` where missing records that the retention dropped are named so."""

    def explained(period: UnknownPeriod) -> UnknownPeriod:
        since, until = period.since, period.until
        if period.reason is UnknownReason.GAP and since is not None:
            gap = dropped_gap(gaps, state_partition, at=since.offset)
        elif period.reason is UnknownReason.EARLIER and until is not None:
            gap = dropped_gap(gaps, state_partition, before=until.offset)
        else:
            return period
        return period if gap is None else replace(period, reason=UnknownReason.DROPPED)

    return replace(history, unknown_periods=tuple(map(explained, history.unknown_periods)))


def _log_order(change: StatusChange) -> tuple[int, int, int]:
    return (change.at.state_partition, change.at.offset, change.first_offset)


def _begun(instance: RecordInstance) -> tuple[Any, ...]:
    """By the time that the first record shows; one without a time comes first."""
    since = next((found.since for found in instance.history.intervals if found.since is not None), None)
    return (-1 if since is None or since.timestamp_ms is None else since.timestamp_ms, instance.state_partition)


class NotedGap(NamedTuple):
    """Offsets of a state partition, both inclusive, that the tables have no records of, and why."""

    first: int
    last: int
    reason: str | None


NotedGaps = Mapping[int, Sequence[NotedGap]]
"""Ascending, by state partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryScope:
    """Share partitions: of a group, of topic ids, of a partition number; None: of all."""

    group_id: str | None = None
    topic_ids: Sequence[str] | None = None
    partition: int | None = None

    def expression(self) -> pc.Expression | None:
        """The rows about them."""
        return all_of(
            None if self.group_id is None else pc.field("group_id") == self.group_id,
            None if self.topic_ids is None else pc.field("topic_id").isin(list(self.topic_ids)),
            None if self.partition is None else pc.field("partition") == self.partition,
        )


def read_completeness(tables: Tables, scope: HistoryScope, *, is_current: bool) -> HistoryCompleteness:
    """What the history in `tables` lacks of the share partitions in `scope`. Without a history nothing is known."""
    where = all_of(pc.field("next_offset").is_null(), scope.expression())
    held = tables.read(HELD, columns=[*KEY_COLUMNS, "state_partition", "held"], where=where).to_pylist()
    places: defaultdict[SharePartition, set[int]] = defaultdict(set)
    for row in held:
        places[share_partition_of(row)].add(row["state_partition"])
    numbers = sorted({row["state_partition"] for row in held})
    gaps, positions = noted_gaps(tables, numbers), change_positions(tables, numbers)
    behind = (  # gaps behind the last record of the history, which has no row for them yet
        MissingRecords(
            key=None,
            state_partition=n,
            reason=UnknownReason.GAP,
            first_record=max(gap.first, positions[n]),
            last_record=gap.last,
        )
        for n, own in gaps.items()
        for gap in own
        if gap.last >= positions[n] > 0
    )
    missing = [*_of_rows(tables, scope, held), *behind]
    placed = (_with_reason(each, gaps) for each in _with_places(tables, missing, gaps))
    return HistoryCompleteness(
        missing=tuple(placed),
        is_current=is_current,
        state_partitions={key: frozenset(own) for key, own in places.items()},
        kept_from_ms=tables.transaction_version(CHANGES, DROPPED_BEFORE),
    )


def _of_rows(tables: Tables, scope: HistoryScope, held: Iterable[Mapping[str, Any]]) -> Iterator[MissingRecords]:
    """The times that are unknown in the history, and the share partitions without a row in it."""
    own: defaultdict[tuple[SharePartition, int], list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(_events(tables, scope), key=lambda event: int(event["record_offset"])):
        own[share_partition_of(event), event["state_partition"]].append(event)
    for (key, number), events in own.items():
        yield from _of_share_partition(key, number, events)
    for row in held:
        key, number = share_partition_of(row), row["state_partition"]
        if row["held"] == OffsetStatusKind.UNKNOWN.value and (key, number) not in own:
            yield MissingRecords(key=key, state_partition=number, reason=UnknownReason.EARLIER)


def _events(tables: Tables, scope: HistoryScope) -> list[dict[str, Any]]:
    """State records (or gaps) that took offsets of a share partition to or from unknown; `is_loss`: to unknown."""
    unknown = OffsetStatusKind.UNKNOWN.value
    is_event = (pc.field("standing") == unknown) | (pc.field("before_standing") == unknown)
    snapshot, found = tables.snapshot(CHANGES), []
    columns, where = [*_EVENT, "standing", "before_standing"], all_of(is_event, scope.expression())
    for batch in () if snapshot is None else snapshot.batches(columns=columns, where=where):
        is_loss = pc.not_equal(batch["before_standing"], unknown)
        found.append(_summed(pa.Table.from_batches([batch]).select(_EVENT).append_column("is_loss", is_loss)))
    events: list[dict[str, Any]] = _summed(pa.concat_tables(found)).to_pylist() if found else []
    return events


def _summed(rows: pa.Table) -> pa.Table:
    summed = rows.group_by(list(_EVENT), use_threads=False).aggregate([("is_loss", "max")])
    return summed.select([*_EVENT, "is_loss_max"]).rename_columns([*_EVENT, "is_loss"])


def _of_share_partition(
    key: SharePartition, number: int, events: Sequence[Mapping[str, Any]]
) -> Iterator[MissingRecords]:
    """`events` in log order. Unknown times end at the first record with the whole state. An update takes offsets to
    unknown, too, where only updates were read: it adds nothing to what is missing already."""
    earlier = MissingRecords(key=key, state_partition=number, reason=UnknownReason.EARLIER)
    open_now = [] if events[0]["is_loss"] else [earlier]
    for event in events:
        cause, offset, time = Cause(event["cause"]), event["record_offset"], event["record_timestamp_ms"]
        if event["is_loss"]:
            reason = _LOSS.get(cause, UnknownReason.NO_SNAPSHOT)
            lost = replace(earlier, reason=reason, first_record=offset, after_ms=time)
            if cause in _LOSS or not open_now:
                open_now.append(lost if cause is Cause.GAP else replace(lost, last_record=offset))
        elif cause in _WHOLE:
            evidence = RecordPosition(state_partition=number, offset=offset, timestamp_ms=time, cause=cause)
            yield from (replace(each, until=evidence) for each in open_now)
            open_now = []
    yield from open_now


def noted_gaps(tables: Tables, numbers: Sequence[int]) -> NotedGaps:
    """The gaps that the exporter and the retention noted, ascending, by state partition."""
    where = pc.field("gap_first").is_valid() & pc.field("state_partition").isin(list(numbers))
    found: defaultdict[int, list[NotedGap]] = defaultdict(list)
    for row in tables.read("export_ranges", columns=["state_partition", *_GAP], where=where).to_pylist():
        found[row["state_partition"]].append(NotedGap(*(row[name] for name in _GAP)))
    return {number: sorted(own, key=lambda gap: gap.first) for number, own in found.items()}


def dropped_gap(
    gaps: NotedGaps, state_partition: int, *, at: int | None = None, before: int | None = None
) -> NotedGap | None:
    """The newest gap with what the retention dropped: with the state record `at`, or before the record `before`; with
    neither, any. None: there is none."""
    found = (
        gap
        for gap in reversed(gaps.get(state_partition, ()))
        if gap.reason == DROPPED_BY_RETENTION
        and (at is None or gap.first <= at <= gap.last)
        and (before is None or gap.first < before)
    )
    return next(found, None)


def _with_reason(missing: MissingRecords, gaps: NotedGaps) -> MissingRecords:
    """`missing` with the retention as the reason where it was that."""
    number, until = missing.state_partition, missing.until
    if missing.reason is UnknownReason.GAP and missing.first_record is not None:
        gap = dropped_gap(gaps, number, at=missing.first_record)
        return missing if gap is None else replace(missing, reason=UnknownReason.DROPPED)
    if missing.reason is UnknownReason.EARLIER:
        gap = dropped_gap(gaps, number, before=None if until is None else until.offset)
        if gap is not None:
            return replace(missing, reason=UnknownReason.DROPPED, first_record=gap.first, last_record=gap.last)
    return missing


def _with_places(tables: Tables, missing: Sequence[MissingRecords], gaps: NotedGaps) -> Iterator[MissingRecords]:
    """`missing` where those that are gaps have their end and the broker's time of the record before them."""
    before: defaultdict[int, set[int]] = defaultdict(set)
    for each in missing:
        if each.reason is UnknownReason.GAP and each.first_record:
            before[each.state_partition].add(each.first_record - 1)
    times = _times(tables, before)
    for each in missing:
        first = each.first_record
        if each.reason is not UnknownReason.GAP or first is None:
            yield each
            continue
        ends = [gap.last for gap in gaps.get(each.state_partition, ()) if gap.first <= first <= gap.last]
        yield replace(each, last_record=max(ends, default=None), after_ms=times.get((each.state_partition, first - 1)))


def _times(tables: Tables, places: Mapping[int, Iterable[int]]) -> dict[tuple[int, int], int]:
    """The broker's time of exported records, by state partition and offset."""
    if not places:
        return {}
    number, offset = pc.field("state_partition"), pc.field("offset")
    where = reduce(or_, ((number == each) & offset.isin(list(own)) for each, own in places.items()))
    rows = tables.read("state_records", columns=["state_partition", "offset", "timestamp_ms"], where=where)
    return {(row["state_partition"], row["offset"]): row["timestamp_ms"] for row in rows.to_pylist()}
