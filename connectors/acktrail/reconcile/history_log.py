"""Rows of records and of held states as one log for each share partition, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array, by_partition_and_offset
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, RecordColumns, content_columns
from acktrail.format.columns.share_partition_keys import key_codes
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.model.status_changes import Cause

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
