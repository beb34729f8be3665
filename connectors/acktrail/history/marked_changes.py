"""Rows of records to rows of changes, fast: updates of regular states by marks, all other records by ``History``.

A mark is the status of an offset as one integer (``status_marks``): an update compares marks without making an object
for each change. ``History`` is the definition; tests compare both on random logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import CHANGE_COLUMNS, change_table, record_of, share_partition_of
from acktrail.model.offset_history.offset_status import KnownState, OffsetStatusKind
from acktrail.model.offset_history.status_changes import DATING, Cause, History, StatusChange
from acktrail.model.offset_history.status_marks import LEAST_RECORDED, UNRECORDED_KINDS, OffsetMarks, mark_of_status
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId

_Key = tuple[str, str, int]
_Integers = npt.NDArray[np.int64]
_SKIPPED: Final = "unknown_type"
"""A broker ignores records of a type that it does not know."""
_CAUSES: Final = tuple(Cause)
_UPDATE: Final = _CAUSES.index(Cause.UPDATE)
_DATING: Final = [_CAUSES.index(cause) for cause in DATING]
_UNKNOWN: Final = LEAST_RECORDED - 1 - UNRECORDED_KINDS.index(OffsetStatusKind.UNKNOWN)
_NAMES: Final = pa.array([OffsetStatusKind.RECORDED.value, *(kind.value for kind in UNRECORDED_KINDS)])
_CAUSE_NAMES: Final = pa.array([cause.value for cause in _CAUSES])


class MarkedHistory:
    """The changes of one state partition, batch of rows by batch of rows in log order, as ``History`` gives them.
    `held` has the states before the first record; ``settle`` changes it in place. Changes of records before offset
    `report_from` are left out."""

    def __init__(
        self, state_partition: int, held: MutableMapping[SharePartition, KnownState], report_from: int
    ) -> None:
        self._state_partition = state_partition
        self._history = History(state_partition, held)
        self._report_from = report_from
        self._marked: dict[_Key, OffsetMarks | None] = {}

    def apply(self, records: pa.RecordBatch, gaps: Mapping[int, int]) -> Iterator[pa.Table]:
        """Rows of ``CHANGE_COLUMNS``. `records`: rows of ``HISTORY_INPUTS``; `gaps`: the first missing offset, by the
        offset of the record after it."""
        begin, offsets = 0, records.column("offset").to_pylist()
        is_unnamed = unattributed(records)
        is_behind_gap = pc.is_in(records.column("offset"), pa.array([*gaps], pa.int64()))
        for row in np.flatnonzero(pc.or_(is_unnamed, is_behind_gap)).tolist():
            yield self._changes_of(records.slice(begin, row - begin))
            self.settle()
            offset, begin = offsets[row], row
            if offset in gaps:
                yield self._new(self._history.gap(gaps[offset]))
            if is_unnamed[row].as_py():
                time = records.column("timestamp_ms")[row].as_py()
                yield self._new(self._history.unattributed(offset=offset, timestamp_ms=time))
        yield self._changes_of(records.slice(begin))

    def _new(self, changes: Iterable[StatusChange]) -> pa.Table:
        return change_table(change for change in changes if change.at.offset >= self._report_from)

    def settle(self) -> None:
        """Put the states that updates changed into `held`."""
        for key, marked in self._marked.items():
            if marked is not None:
                self._history.known_states[_share_partition(key)] = marked.state
        self._marked.clear()

    def _changes_of(self, records: pa.RecordBatch) -> pa.Table:
        """Rows of ``CHANGE_COLUMNS``. `flat`: four integers a change, first and last offset, marks before and after."""
        flat: list[int] = []
        rows, counts, causes = [], [], []
        columns = _Columns(records)
        for row, key in enumerate(columns.keys):
            before = len(flat)
            cause = _UPDATE
            if not (columns.is_update[row] and self._update(key, columns, row, flat)):
                cause = self._by_history(records.slice(row, 1).to_pylist()[0], flat)
            if columns.offsets[row] < self._report_from:
                del flat[before:]
            elif len(flat) > before:
                rows.append(row)
                counts.append((len(flat) - before) // 4)
                causes.append(cause)
        found = np.array(flat, np.int64).reshape(-1, 4)
        return self._table(records, found, np.repeat(rows, counts), np.repeat(causes, counts))

    def _update(self, key: _Key, columns: _Columns, row: int, flat: list[int]) -> bool:
        if key not in self._marked:
            held = self._history.known_states.get(_share_partition(key))
            self._marked[key] = OffsetMarks.of(held) if isinstance(held, SharePartitionState) else None
        marked = self._marked[key]
        if marked is None:
            return False
        own = slice(columns.ends[row], columns.ends[row + 1])
        return marked.update(
            columns.starts[row],
            columns.leaders[row],
            columns.completes[row],
            columns.firsts[own],
            columns.lasts[own],
            columns.marks[own],
            flat,
        )

    def _by_history(self, row: dict[str, Any], flat: list[int]) -> int:
        """Apply a row by ``History``; the cause of its changes."""
        if row["group_id"] is None or row["decode_status"] == _SKIPPED:
            return _UPDATE
        key = (row["group_id"], row["topic_id"], row["partition"])
        marked = self._marked.pop(key, None)
        if marked is not None:
            self._history.known_states[_share_partition(key)] = marked.state
        at: dict[str, int] = {"offset": row["offset"], "timestamp_ms": row["timestamp_ms"]}
        cause = _UPDATE
        if row["decode_status"] == "decoded":
            changes = self._history.record(record_of(row), **at)
        else:
            changes = self._history.unreadable(share_partition_of(row), **at)
        for change in changes:
            marks = mark_of_status(change.before), mark_of_status(change.after)
            flat += (change.first_offset, change.last_offset, *marks)
            cause = _CAUSES.index(change.at.cause)
        return cause

    def _table(self, records: pa.RecordBatch, found: _Integers, rows: _Integers, causes: _Integers) -> pa.Table:
        if not len(found):
            return CHANGE_COLUMNS.empty_table()
        before, after = found[:, 2], found[:, 3]
        is_dated = (before != _UNKNOWN) | np.isin(causes, _DATING) | ((causes == _UPDATE) & (after >= LEAST_RECORDED))
        of_record = records.select([*KEY_COLUMNS, "offset", "timestamp_ms"]).take(pa.array(rows))
        columns = {
            **{name: of_record.column(name) for name in KEY_COLUMNS},
            "first_offset": pa.array(found[:, 0]),
            "last_offset": pa.array(found[:, 1]),
            **_status_columns("before_standing", "before_state", "before_count", before),
            **_status_columns("standing", "delivery_state", "delivery_count", after),
            "cause": _CAUSE_NAMES.take(pa.array(causes)),
            "is_dated": pa.array(is_dated),
            "state_partition": pa.repeat(pa.scalar(self._state_partition, pa.int32()), len(found)),
            "record_offset": of_record.column("offset"),
            "record_timestamp_ms": of_record.column("timestamp_ms"),
        }
        return pa.Table.from_arrays([columns[name] for name in CHANGE_COLUMNS.names], schema=CHANGE_COLUMNS)


def unattributed(records: pa.RecordBatch | pa.Table) -> pa.Array:
    """Whether each record may be about any share partition: it names none, and a broker would not skip it."""
    return pc.and_(pc.is_null(records.column("group_id")), pc.not_equal(records.column("decode_status"), _SKIPPED))


class _Columns:
    """A batch of rows as lists: item access without an Arrow scalar for each value."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self.keys: list[_Key] = list(zip(*(records.column(name).to_pylist() for name in KEY_COLUMNS), strict=True))
        is_update = pc.and_(
            pc.equal(records.column("decode_status"), "decoded"), pc.equal(records.column("record_type"), "update")
        )
        self.is_update: list[bool | None] = is_update.to_pylist()
        self.offsets: list[int] = records.column("offset").to_pylist()
        self.starts: list[int | None] = records.column("start_offset").to_pylist()
        self.leaders: list[int | None] = records.column("leader_epoch").to_pylist()
        self.completes: list[int | None] = records.column("delivery_complete_count").to_pylist()
        lengths = pc.fill_null(pc.list_value_length(records.column("batches")), 0).to_numpy()
        self.ends: list[int] = [0, *np.cumsum(lengths).tolist()]
        batches = pc.list_flatten(records.column("batches"))
        first, last, state, count = (
            pc.struct_field(batches, name).to_numpy(zero_copy_only=False)
            for name in ("first_offset", "last_offset", "delivery_state", "delivery_count")
        )
        self.firsts: list[int] = first.tolist()
        self.lasts: list[int] = last.tolist()
        self.marks: list[int] = (count.astype(np.int64) * 256 + state + 128).tolist()


def _status_columns(standing: str, state: str, count: str, marks: _Integers) -> dict[str, pa.Array]:
    """The columns of a status; `marks`: int64, shape (changes,)."""
    is_recorded = marks >= LEAST_RECORDED
    counts, states = np.divmod(marks, 256)
    kinds = np.where(is_recorded, 0, LEAST_RECORDED - marks)
    return {
        standing: _NAMES.take(pa.array(kinds)),
        state: pa.array((states - 128).astype(np.int8), mask=~is_recorded),
        count: pa.array(np.where(is_recorded, counts, 0).astype(np.int16), mask=~is_recorded),
    }


def _share_partition(key: _Key) -> SharePartition:
    return SharePartition(group_id=GroupId(key[0]), topic_id=TopicId(key[1]), partition=key[2])
