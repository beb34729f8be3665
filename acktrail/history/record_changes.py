"""Rows of records to rows of changes and of held states, for all share partitions of some state partitions at once.

The definition, record by record, is in ``tests/support``; tests compare both on random logs.

Rows of records and of held states become one log for each share partition, in columns. A *run* is a share partition's
records from one that does not depend on those before it (a snapshot, a tombstone, one that cannot be read, an update
without a state) to the next such one. A *mark* is the status of an offset as one integer: within a run an update raises
the marks of its offsets, and one that moves the start offset replaces those that it passes.

For example, three records of a share partition::

    3:40 snapshot, start offset 0                  a run begins: from 0 on `unrecorded`
    3:41 update, 0 to 6 acknowledged, count 1      the marks of 0 to 6 rise: `unrecorded` -> `recorded`
    3:42 update, start offset 5                    those of 0 to 4 are replaced: `recorded` -> `below_start`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array, ascending, by_partition_and_offset, strides
from acktrail.format.columns.record_columns import (
    CHANGE_COLUMNS,
    CONTENT_NUMBERS,
    HELD_COLUMNS,
    NumberColumn,
    RecordColumns,
    content_columns,
    state_and_count,
)
from acktrail.format.columns.schemas.table_schemas import with_dictionaries
from acktrail.format.columns.share_partition_keys import key_codes
from acktrail.model.offset_changes import DATING, LAST_OFFSET, Cause
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.column_replay import fold, starts_in_force
from acktrail.replay.combine_batches import LOWEST, ConcatenatedRecords, Segments
from acktrail.replay.mark_timelines import MarkChanges, MarkedRanges, timelines

STATE, UPDATE, ABSENT, UNKNOWN = range(4)
"""What a row is: a state (held, a snapshot, or an update without a state before it); an update of a state; from here on
there is no state; from here on it is not known."""
CAUSES: Final = {cause: number for number, cause in enumerate(Cause)}
_SKIPPED: Final = "unknown_type"
"""A broker ignores records of a type that it does not know."""
HELD_NAMES: Final = pa.array(["state", None, "absent", "unknown"])
_RECORD_NAMES: Final = pa.array(["snapshot", "update", "tombstone", "unknown"])
_CAUSES_OF_KINDS: Final = np.array([CAUSES[Cause(name)] for name in ("snapshot", "update", "tombstone", "unreadable")])
_ADDRESS: Final = ("state_partition", *KEY_COLUMNS)
_COLUMNS: Final = (*CONTENT_NUMBERS, "batches", "offset", "timestamp_ms")
_BEFORE: Final = -1
_NEVER: Final = np.iinfo(np.int64).max
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
    """Rows of ``CHANGE_COLUMNS``, texts as dictionaries, in the order in which they are stored: by share partition,
    first offset, and place in the log. And the rows `held` after them: of every share partition ever seen.

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
    changes = changes.take(reported[ascending(changes.row[reported])]).joined()
    changes = changes.take(by_partition_and_offset(_ranks(log.keys)[log.owner[changes.row]], changes.first))
    return _change_table(log, changes), pa.concat_tables([log.untouched, _held_table(log)])


def _ranks(keys: pa.Table) -> Int64Array:
    """The place of each share partition among all, the same on every state partition."""
    codes = key_codes(keys[name] for name in KEY_COLUMNS)
    order = pc.sort_indices(keys, [(name, "ascending") for name in KEY_COLUMNS]).to_numpy()
    ranks = np.empty(len(codes), np.int64)
    ranks[codes[order]] = np.arange(len(codes))
    return ranks[codes]


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
    """For each row the mark of the offsets at or above the start offset that are in no batch (``status_at``)."""
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
        "last_offset": pa.array(changes.last, mask=changes.last == LAST_OFFSET),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLog:
    """What changes the states of share partitions, one after the other, each in log order: arrays of shape (rows,).

    `owner` is the share partition's row in `keys`, which ascend by state partition, then key. `place` is the order in
    the log, state partition after state partition; held states have -1. `base` is the last row, up to this one, that
    does not depend on those before it. The numbers and batches are in row `source` of `content`, the time is in row
    `seen`; `offset` is that of the record, or the first one of a gap. `cause`: why it changes something (``CAUSES``).
    `untouched`: the held states that nothing changes.
    """

    keys: pa.Table
    content: RecordColumns
    untouched: pa.Table
    owner: Int64Array
    place: Int64Array
    kind: Int64Array
    base: Int64Array
    source: Int64Array
    seen: Int64Array
    offset: Int64Array
    cause: Int64Array

    @classmethod
    def of(cls, held: pa.Table, records: pa.Table, missing: Int64Array) -> Self:
        """The log of rows of ``HELD_COLUMNS``, of ``HISTORY_INPUTS`` by state partition and offset, and of gaps: the
        first `missing` offset before each record, -1 where none is."""
        owner, keys = _numbered(held, records)
        is_read, has_key = pc.not_equal(records["decode_status"], _SKIPPED).to_numpy(), pc.is_valid(records["group_id"])
        is_named = is_read & has_key.to_numpy()
        losses = _losses(records, missing, np.flatnonzero(is_read & ~is_named))
        begins, ends = _spans(keys, records)
        is_lossy = np.searchsorted(losses["place"], begins) < np.searchsorted(losses["place"], ends)
        is_own = is_lossy.copy()
        is_own[owner[held.num_rows :][is_named]] = True
        is_held = is_own[owner[: held.num_rows]]
        untouched, held = held.filter(pa.array(~is_held)), held.filter(pa.array(is_held))
        owner = np.append(owner[: len(is_held)][is_held], owner[len(is_held) :])
        table = _stacked(held, records)
        content = content_columns(table, ("offset", "timestamp_ms"))
        seen = np.flatnonzero(np.append(np.ones(held.num_rows, np.bool_), is_named))
        place = np.append(np.full(held.num_rows, _BEFORE), 2 * np.arange(records.num_rows) + 1)
        seen = seen[by_partition_and_offset(owner[seen], place[seen])]
        kind = _kinds(held, records)[seen]
        rows = {"owner": owner[seen], "place": place[seen], "kind": kind, "seen": seen, "cause": _CAUSES_OF_KINDS[kind]}
        losses["seen"] += held.num_rows
        rows = _with_losses(rows | {"offset": content.numbers["offset"].values[seen]}, losses, begins, ends)
        kind, seen = rows["kind"], rows["seen"]
        is_known = kind < ABSENT
        continues = np.append(False, is_known[:-1]) & (np.diff(rows["owner"], prepend=-1) == 0)
        rows["kind"] = np.where((kind == UPDATE) & ~continues, STATE, kind)
        base = np.maximum.accumulate(np.where(rows["kind"] == UPDATE, 0, np.arange(len(kind))))
        source = np.where(is_known, seen, table.num_rows - 1)
        row = np.flatnonzero((rows["cause"] == CAUSES[Cause.SNAPSHOT]) & (rows["place"] != _BEFORE))
        before = np.where(continues[row], source[base[row - 1]], table.num_rows - 1)
        rows["cause"][row] = _causes_of_snapshots(content, source[row], before)
        return cls(keys=keys, content=content, untouched=untouched, base=base, source=source, **rows)

    @property
    def is_first(self) -> BoolArray:
        """Whether each row is the first one of its share partition."""
        return np.diff(self.owner, prepend=-1) != 0


def _stacked(held: pa.Table, records: pa.Table) -> pa.RecordBatch:
    """``_COLUMNS`` of both, and a last row without a value."""
    earlier, later = held.select(_COLUMNS[:-2]), records.select(_COLUMNS)
    parts = [earlier, later, pa.Table.from_pylist([{}], schema=later.schema)]
    return pa.concat_tables(parts, promote_options="default").combine_chunks().to_batches()[0]


def _numbered(held: pa.Table, records: pa.Table) -> tuple[Int64Array, pa.Table]:
    """The number of the share partition of each row of both, in the order of their addresses, and these addresses."""
    table = pa.concat_tables([held.select(_ADDRESS), records.select(_ADDRESS)])
    codes = key_codes(table.columns)
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    keys = table.take(pa.array(first)).combine_chunks()
    order = pc.sort_indices(keys, [(name, "ascending") for name in _ADDRESS]).to_numpy().astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], keys.take(pa.array(order))


def _spans(keys: pa.Table, records: pa.Table) -> tuple[Int64Array, Int64Array]:
    """From where to where the state partition of each of `keys` lies in the log."""
    own, numbers = keys["state_partition"].to_numpy(), records["state_partition"].to_numpy()
    begins, ends = (2 * np.searchsorted(numbers, own, side) for side in ("left", "right"))
    return begins, ends


def _kinds(held: pa.Table, records: pa.Table) -> Int64Array:
    types = pc.if_else(pc.equal(records["decode_status"], "decoded"), records["record_type"], "unknown")
    pairs = ((held["held"], HELD_NAMES), (types, _RECORD_NAMES))
    return np.concatenate([pc.index_in(own, value_set=kinds).to_numpy().astype(np.int64) for own, kinds in pairs])


def _losses(records: pa.Table, missing: Int64Array, unnamed: Int64Array) -> dict[str, Int64Array]:
    """What makes all states of a state partition unknown, in log order: gaps, and `unnamed` records
    that a broker reads. `seen`: rows of `records`, and the one after them."""
    behind = np.flatnonzero(missing >= 0)
    found = {
        "place": np.append(2 * behind, 2 * unnamed + 1),
        "seen": np.append(np.full(len(behind), records.num_rows), unnamed),
        "offset": np.append(missing[behind], records["offset"].to_numpy()[unnamed]),
        "cause": np.repeat([CAUSES[Cause.GAP], CAUSES[Cause.UNREADABLE]], [len(behind), len(unnamed)]),
    }
    order = np.argsort(found["place"])
    return {name: column[order] for name, column in found.items()}


def _with_losses(
    rows: dict[str, Int64Array], losses: Mapping[str, Int64Array], begins: Int64Array, ends: Int64Array
) -> dict[str, Int64Array]:
    """`rows`, and behind each the first loss that comes before the next one of its share partition, or before the end
    of its state partition."""
    owner, place = rows["owner"], rows["place"]
    is_last = np.diff(owner, append=-1) != 0
    until = np.where(is_last, ends[owner], np.append(place[1:], _NEVER)[: len(is_last)])
    loss = np.searchsorted(losses["place"], np.maximum(place, begins[owner]))
    after = np.flatnonzero(np.append(losses["place"], _NEVER)[loss] < until)
    own = {name: column[loss[after]] for name, column in losses.items()}
    own |= {"owner": owner[after], "kind": np.full(len(after), UNKNOWN)}
    return {name: np.insert(column, after + 1, own[name]) for name, column in rows.items()}


def _causes_of_snapshots(content: RecordColumns, row: Int64Array, before: Int64Array) -> Int64Array:
    """The causes of the snapshots in rows of `content`; `before`: the row of the state's base before each."""
    own = {name: column.take(row) for name, column in content.numbers.items()}
    epoch, has_state = content.numbers["state_epoch"].take(before), content.numbers["snapshot_epoch"].take(before).mask
    is_empty = content.batches.counts[row] == 0
    created, written = own["create_timestamp_ms"], own["write_timestamp_ms"]
    is_new = created.mask & written.mask & (created.values == written.values)
    is_new &= (own["leader_epoch"].values == 0) & is_empty
    is_reset = has_state & (is_new | (epoch.mask & (epoch.values != own["state_epoch"].values)))
    is_begin = ~has_state & is_empty & (own["snapshot_epoch"].values == 0)
    return np.select([is_begin, is_reset], [CAUSES[Cause.INITIALIZE], CAUSES[Cause.RESET]], CAUSES[Cause.SNAPSHOT])
