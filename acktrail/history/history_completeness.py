"""How complete the history of share partitions is, from its rows, the ranges of the export and unreadable records.

Sources: rows of ``delivery_history`` to and from ``unknown``; ``held_states``, for share partitions without such a row;
``export_ranges``, for gaps with no record behind them yet and what the retention dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, groupby
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.record_columns import share_partition_of
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.history.history_tables import CHANGES, HELD, change_positions
from acktrail.history.observed_run import Gap
from acktrail.model.log_positions import DROPPED_BY_RETENTION
from acktrail.model.offset_changes import (
    Cause,
    HistoryCompleteness,
    MissingRecords,
    OffsetStatusKind,
    RecordPosition,
    UnknownReason,
)
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import all_of, one_of
from acktrail.tables.records.record_files import DROPPED_BEFORE

_EVENT: Final = (*KEY_COLUMNS, "state_partition", "record_offset", "cause", "record_timestamp_ms")
_EVENTS_AT_ONCE: Final = 8_192
"""Events converted to Python values together."""
_WHOLE: Final = frozenset({Cause.SNAPSHOT, Cause.INITIALIZE, Cause.RESET, Cause.TOMBSTONE})
"""Records with the whole state: nothing is unknown after them."""
_GAP: Final = ("gap_first", "gap_last", "gap_reason")
_LOSS: Final = {Cause.GAP: UnknownReason.GAP, Cause.UNREADABLE: UnknownReason.UNREADABLE}


NotedGaps = Mapping[int, Sequence[Gap]]
"""Ascending, by state partition."""


def read_completeness(tables: Tables, about: pc.Expression | None, *, is_current: bool) -> HistoryCompleteness:
    """What the history in `tables` lacks of some share partitions: `about` holds for rows about them (None: for all).
    Without a history nothing is known."""
    where = all_of(pc.field("next_offset").is_null(), about)
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
            first_record=max(gap.first_offset, positions[n]),
            last_record=gap.last_offset,
        )
        for n, own in gaps.items()
        for gap in own
        if gap.last_offset >= positions[n] > 0
    )
    missing = [*_of_rows(tables, about, held), *behind]
    placed = (_with_reason(each, gaps) for each in _with_places(tables, missing, gaps))
    return HistoryCompleteness(
        missing=tuple(placed),
        is_current=is_current,
        state_partitions={key: frozenset(own) for key, own in places.items()},
        kept_from_ms=tables.transaction_version(CHANGES, DROPPED_BEFORE),
    )


def _of_rows(
    tables: Tables, about: pc.Expression | None, held: Iterable[Mapping[str, Any]]
) -> Iterator[MissingRecords]:
    """The times that are unknown in the history, and the share partitions without a row in it."""
    known = set[tuple[SharePartition, int]]()
    for place, own in groupby(_events(tables, about), lambda each: (share_partition_of(each), each["state_partition"])):
        known.add(place)
        yield from _of_share_partition(*place, own)
    for row in held:
        key, number = share_partition_of(row), row["state_partition"]
        if row["held"] == OffsetStatusKind.UNKNOWN.value and (key, number) not in known:
            yield MissingRecords(key=key, state_partition=number, reason=UnknownReason.EARLIER)


def _events(tables: Tables, about: pc.Expression | None) -> Iterator[dict[str, Any]]:
    """State records (or gaps) that took offsets of a share partition to or from unknown, by share partition, each in
    log order; `is_loss`: to unknown. Each has a row for every interval of offsets: memory grows with the events, as
    columns, not with these rows."""
    unknown = OffsetStatusKind.UNKNOWN.value
    is_event = (pc.field("standing") == unknown) | (pc.field("before_standing") == unknown)
    snapshot, found = tables.snapshot(CHANGES), []
    columns, where = [*_EVENT, "standing", "before_standing"], all_of(is_event, about)
    for batch in () if snapshot is None else snapshot.batches(columns=columns, where=where):
        is_loss = pc.not_equal(batch["before_standing"], unknown)
        found.append(grouped(pa.Table.from_batches([batch]).append_column("is_loss", is_loss), _EVENT, is_loss="max"))
    if found:
        events = grouped(pa.concat_tables(found), _EVENT, is_loss="max")
        for part in events.sort_by([(name, "ascending") for name in _EVENT]).to_batches(_EVENTS_AT_ONCE):
            yield from part.to_pylist()


def _of_share_partition(
    key: SharePartition, number: int, events: Iterator[Mapping[str, Any]]
) -> Iterator[MissingRecords]:
    """`events` in log order. Unknown times end at the first record with the whole state. An update takes offsets to
    unknown, too, where only updates were read: it adds nothing to what is missing already."""
    earlier = MissingRecords(key=key, state_partition=number, reason=UnknownReason.EARLIER)
    first = next(events)
    open_now = [] if first["is_loss"] else [earlier]
    for event in chain((first,), events):
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
    where = pc.field("gap_first").is_valid() & one_of("state_partition", numbers)
    found: defaultdict[int, list[Gap]] = defaultdict(list)
    for row in tables.read("export_ranges", columns=["state_partition", *_GAP], where=where).to_pylist():
        found[row["state_partition"]].append(Gap(*(row[name] for name in _GAP)))
    return {number: sorted(own, key=lambda gap: gap.first_offset) for number, own in found.items()}


def dropped_gap(
    gaps: NotedGaps, state_partition: int, reason: UnknownReason, first: int | None, until: RecordPosition | None
) -> Gap | None:
    """What the retention dropped, where that is why records are missing: the gap with the `first` one of a gap; or,
    where earlier ones are missing, the newest gap before the record `until` (None: any)."""
    dropped = (gap for gap in reversed(gaps.get(state_partition, ())) if gap.reason == DROPPED_BY_RETENTION)
    if reason is UnknownReason.GAP and first is not None:
        return next((gap for gap in dropped if gap.first_offset <= first <= gap.last_offset), None)
    if reason is UnknownReason.EARLIER:
        return next((gap for gap in dropped if until is None or gap.first_offset < until.offset), None)
    return None


def _with_reason(missing: MissingRecords, gaps: NotedGaps) -> MissingRecords:
    """`missing` with the retention as the reason where it was that."""
    gap = dropped_gap(gaps, missing.state_partition, missing.reason, missing.first_record, missing.until)
    if gap is None:
        return missing
    first, last = missing.first_record, missing.last_record
    if missing.reason is UnknownReason.EARLIER:
        first, last = gap.first_offset, gap.last_offset
    return replace(missing, reason=UnknownReason.DROPPED, first_record=first, last_record=last)


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
        own = gaps.get(each.state_partition, ())
        ends = [gap.last_offset for gap in own if gap.first_offset <= first <= gap.last_offset]
        yield replace(each, last_record=max(ends, default=None), after_ms=times.get((each.state_partition, first - 1)))


def _times(tables: Tables, places: Mapping[int, Iterable[int]]) -> dict[tuple[int, int], int]:
    """The broker's time of exported records, by state partition and offset."""
    if not places:
        return {}
    number = pc.field("state_partition")
    where = reduce(or_, ((number == each) & one_of("offset", own) for each, own in places.items()))
    rows = tables.read("state_records", columns=["state_partition", "offset", "timestamp_ms"], where=where)
    return {(row["state_partition"], row["offset"]): row["timestamp_ms"] for row in rows.to_pylist()}
