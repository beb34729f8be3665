"""Rows of records to rows of changes and of held states, for all share partitions of some state partitions at once.

``model.status_changes`` defines them record by record; tests compare both on random logs. A *run* is a
share partition's records from one that does not depend on those before it (a snapshot, a tombstone, one that cannot be
read, an update without a state) to the next such one. A *mark* is the status of an offset as one integer: within a run
an update raises the marks of its offsets, and one that moves the start offset replaces those that it passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array, ascending, by_partition_and_offset, strides
from acktrail.format.columns.model_values import CHANGE_COLUMNS, HELD_COLUMNS
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, NumberColumn, state_and_count
from acktrail.format.columns.schemas.table_schemas import with_dictionaries
from acktrail.model.status_changes import DATING, LAST_OFFSET, Cause
from acktrail.reconcile.history_log import ABSENT, CAUSES, HELD_NAMES, STATE, UNKNOWN, UPDATE, HistoryLog
from acktrail.replay.combine_batches import LOWEST, ConcatenatedRecords, Segments
from acktrail.replay.fold import fold, starts_in_force
from acktrail.replay.mark_timelines import MarkChanges, MarkedRanges, timelines

_LEAST_RECORDED: Final = -(1 << 24)
"""Lower bound of the marks of delivery states, which are the priorities of ``ClippedBatches``."""
_STANDINGS: Final = pa.array(["recorded", "unrecorded", "uninitialized", "absent", "unknown", "below_start"])
"""All other marks by how far they are below, greatest first: with a start offset, uninitialized becomes unrecorded."""
_UNRECORDED, _UNINITIALIZED, _ABSENT, _UNKNOWN, _BELOW_START, _NEVER_SEEN = (_LEAST_RECORDED - n for n in range(1, 7))
_CAUSE_NAMES: Final = pa.array([cause.value for cause in CAUSES])
_CHANGES: Final = with_dictionaries(CHANGE_COLUMNS)
_DATING: Final = [CAUSES[cause] for cause in DATING]


def record_changes(
    held: pa.Table, records: pa.Table, missing: Int64Array, report_from: Mapping[int, int]
) -> tuple[pa.Table, pa.Table]:
    """Rows of ``CHANGE_COLUMNS`` in log order, texts as dictionaries, and the rows `held` after them: of every share
    partition ever seen.

    Args:
        held: rows of ``HELD_COLUMNS``: the states before the first record.
        records: rows of ``HISTORY_INPUTS`` by state partition and offset.
        missing: shape (records,), the first missing offset before each record, -1 for none: from there on no state of
            its state partition is known.
        report_from: by state partition; changes of records before this offset are left out.
    """
    log = HistoryLog.of(held, records, missing)
    if not len(log.owner):
        return _CHANGES.empty_table(), held
    changes = _changes(log)
    numbers, of_key = np.unique(log.keys["state_partition"].to_numpy(), return_inverse=True)
    least = np.array([report_from.get(number, 0) for number in numbers.tolist()], np.int64)[of_key]
    reported = np.flatnonzero((log.offset >= least[log.owner])[changes.row])
    in_log = np.empty(len(log.place), np.int64)
    in_log[by_partition_and_offset(log.place, log.owner)] = np.arange(len(in_log))
    changes = changes.take(reported[ascending(in_log[changes.row[reported]])]).joined()
    return _change_table(log, changes), pa.concat_tables([log.untouched, _held_table(log)])


def _changes(log: HistoryLog) -> MarkChanges:
    """The changes of all rows; those of one row ascend. At the base of a run the state before it ends."""
    runs = timelines(_marked_ranges(log))
    is_first = np.append(log.is_first, True)
    is_compared = (log.place >= 0) & (~log.is_first | (log.kind != UNKNOWN))
    new = np.flatnonzero(is_compared & log.is_first)
    bases = np.flatnonzero(log.kind != UPDATE)
    following = np.append(bases[1:], len(log.base))[np.searchsorted(bases, runs.ends.run)]
    old = replace(runs.ends, run=following, row=following - 1).take(np.flatnonzero(~is_first[following]))
    own = replace(runs.begins, replaces=np.ones(len(runs.begins.run), np.bool_))
    own = own.take(np.flatnonzero(is_compared[own.run]))
    never = replace(MarkedRanges.of(new, 0, LAST_OFFSET, _NEVER_SEEN), row=new - 1)
    ranges = MarkedRanges.concat([old, never, own])
    return MarkChanges.concat([runs.changes, timelines(ranges.take(ascending(ranges.run))).changes])


def _marked_ranges(log: HistoryLog) -> MarkedRanges:
    """What each row marks."""
    start, is_base = log.content.numbers["start_offset"], log.kind != UPDATE
    at_least_0 = NumberColumn(values=np.maximum(start.values, 0), known=start.known)
    starts = starts_in_force(at_least_0, Segments.of(log.source, np.flatnonzero(is_base)))
    before = np.where(is_base, LOWEST, np.append(LOWEST, starts[:-1]))
    low, old_low, rest = np.maximum(starts, 0), np.maximum(before, 0), _marks_of_rest(log, starts)
    begun = np.flatnonzero(is_base | ((before == LOWEST) & (starts != LOWEST)))
    passed, back = np.flatnonzero(low > old_low), np.flatnonzero(low < old_low)
    # A base is not pruned at its own start offset: where the next one is lower, its batches there count from then.
    shown = back[is_base[back - 1]]
    parts = [
        MarkedRanges.of(begun, low[begun], LAST_OFFSET, rest[begun]),
        MarkedRanges.of(passed, old_low[passed], low[passed] - 1, _BELOW_START, replaces=True),
        MarkedRanges.of(back, low[back], old_low[back] - 1, rest[back]),
        _marked_batches(log, np.arange(len(low)), low, np.full(len(low), LAST_OFFSET), 0),
        _marked_batches(log, shown, low[shown], old_low - 1, 1),
    ]
    ranges = MarkedRanges.concat(parts)
    ranges = ranges.take(ascending(ranges.row))
    return replace(ranges, run=log.base[ranges.row])


def _marks_of_rest(log: HistoryLog, starts: Int64Array) -> Int64Array:
    """For each row the mark of the offsets at or above the start offset that are in no batch (``kind_of_rest``)."""
    has_snapshot = log.content.numbers["state_epoch"].mask[log.source[log.base]]
    cases = [log.kind[log.base] == ABSENT, ~has_snapshot, starts == LOWEST]
    return np.select(cases, [_ABSENT, _UNKNOWN, _UNINITIALIZED], _UNRECORDED)


def _marked_batches(log: HistoryLog, rows: Int64Array, low: Int64Array, high: Int64Array, back: int) -> MarkedRanges:
    """The batches of the rows that are so far `back`, as if `rows` had them, between `low` and `high`, which have a
    number for each row of `rows` and of the log."""
    clipped = log.content.batches.take(log.source[rows - back]).clip(rows, low)
    last = np.minimum(clipped.last, high[clipped.segment])
    marked = MarkedRanges.of(clipped.segment, clipped.first, last, clipped.priority)
    return marked.take(np.flatnonzero(clipped.first <= last))


def _change_table(log: HistoryLog, changes: MarkChanges) -> pa.Table:
    row, after = changes.row, changes.after
    cause = log.cause[row]
    was = np.where(cause == CAUSES[Cause.INITIALIZE], _ABSENT, _UNKNOWN)
    before = np.where(changes.before == _NEVER_SEEN, was, changes.before)
    is_dated = (before != _UNKNOWN) | np.isin(cause, _DATING)
    is_dated |= (cause == CAUSES[Cause.UPDATE]) & (after >= _LEAST_RECORDED)
    columns = {
        **_addresses(log, row),
        "first_offset": changes.first,
        "last_offset": changes.last,
        **_status_columns("before_standing", "before_state", "before_count", before),
        **_status_columns("standing", "delivery_state", "delivery_count", after),
        "cause": _texts(cause, _CAUSE_NAMES),
        "is_dated": is_dated,
        "record_offset": log.offset[row],
        "record_timestamp_ms": log.content.numbers["timestamp_ms"].take(log.seen[row]).to_arrow(pa.int64()),
    }
    return pa.Table.from_pydict(columns, schema=_CHANGES)


def _held_table(log: HistoryLog) -> pa.Table:
    """The state after the last row of each share partition."""
    last = np.flatnonzero(np.diff(log.owner, append=-1))
    rows = strides(log.base[last], last - log.base[last] + 1, 1)
    starts = np.flatnonzero(log.kind[rows] != UPDATE)
    states = fold(ConcatenatedRecords([log.content]), log.source[rows], starts)
    kind = log.kind[rows[starts]]
    columns = {
        **{name: pc.cast(column, HELD_COLUMNS.field(name).type) for name, column in _addresses(log, last).items()},
        "held": HELD_NAMES.take(pa.array(kind)),
        **{name: states.numbers[name].to_arrow(HELD_COLUMNS.field(name).type) for name in CONTENT_NUMBERS},
        "batches": states.batches.to_arrow(kind == STATE),
    }
    return pa.Table.from_pydict(columns, schema=HELD_COLUMNS)


def _addresses(log: HistoryLog, rows: Int64Array) -> dict[str, pa.Array]:
    keys, found = log.owner[rows], dict[str, pa.Array]()
    for name in log.keys.column_names:
        column = log.keys[name].combine_chunks()
        if not pa.types.is_string(column.type):
            found[name] = column.take(pa.array(keys))
            continue
        encoded = column.dictionary_encode()
        found[name] = _texts(encoded.indices.fill_null(0).to_numpy()[keys], encoded.dictionary)
    return found


def _texts(numbers: Int64Array, texts: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), texts)


def _status_columns(standing: str, state: str, count: str, marks: Int64Array) -> dict[str, pa.Array]:
    """The columns of a status; `marks`: int64, shape (changes,)."""
    is_recorded = marks >= _LEAST_RECORDED
    states, counts = state_and_count(marks.astype(np.int32))
    return {
        standing: _texts(np.where(is_recorded, 0, _LEAST_RECORDED - marks), _STANDINGS),
        state: NumberColumn(values=states, known=is_recorded).to_arrow(pa.int8()),
        count: NumberColumn(values=counts, known=is_recorded).to_arrow(pa.int16()),
    }
