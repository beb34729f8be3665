"""The instants that verdicts rest on (``law.order.Marks``), out of any number of looks in one pass.

A *lane* is one partition of one expansion of a topic. Looks are read in pieces that follow each other in time; those of
one group in one topic are a matrix of positions, lanes by readings, that carries its marks on from the piece before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.schemas.table_schemas import INT64
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.found_expansions import TopicExpansion
from acktrail_expansion.audit.topic_looks import by_names
from acktrail_expansion.law.order import NEVER, NEVER_YET, Marks

POSITIONS: Final = "group_positions"
SHARE: Final = "share"
Owner = tuple[str, str, str]
"""A topic id, a group id and the group's type."""
_UNKNOWN: Final = -2
"""In place of a position: it was not read."""
_NONE: Final = -1
"""In place of a position: there is none."""
_DONE: Final = 1 << 60
"""Added to a share group's position where nothing is left: with less than that it has fallen, as after a reset, also
where the start offset has not."""
_START: Final[dict[str, Any]] = {**asdict(Marks()), "first": _NONE, "last": _UNKNOWN}
"""The marks of no look, with the `first` position and the `last` progress known since the last restart."""
_OWNER: Final = ("topic_id", "group_id", "group_type")
_COLUMNS: Final = (*_OWNER, "partition", "position", "lag", "observed_at", "error_code")
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The partitions of the expansions of one topic, expansion by expansion. Of each: the last look before the
    expansion, in microseconds; up to where a group has not begun
    for certain, and from where it has; the source's fence; and from when on nothing left means that all below its high
    end is finished, in microseconds."""

    partition: Int64Array
    since: Int64Array
    idle: Int64Array
    begun: Int64Array
    low: Int64Array
    high: Int64Array
    reached_at: Int64Array

    @classmethod
    def of(cls, own: Sequence[TopicExpansion]) -> Self:
        """Those of the expansions of one topic."""
        rows = [_lane(each, partition) for each in own for partition in range(each.new_count)]
        return cls(*np.array(rows, np.int64).T)


def _lane(each: TopicExpansion, partition: int) -> tuple[int, ...]:
    idle, begun = each.begins(partition)
    fence = each.source(partition) if partition < each.old_count else None
    low, high = (fence.low, fence.high) if fence else (None, None)
    is_before = fence is not None and high is not None and high <= fence.before
    reached_at = each.row["last_seen_old_at" if is_before else "settles_at"]
    nothing = (NEVER_YET, NEVER, 0, NEVER, NEVER)
    limits = (idle, begun, low, high, reached_at)
    return (
        partition,
        each.row["last_seen_old_at"],
        *(other if own is None else own for own, other in zip(limits, nothing, strict=True)),
    )


def read_marks(tables: Tables, pieces: Iterable[Sequence[str]], lanes: Mapping[str, Lanes]) -> dict[Owner, list[Marks]]:
    """The marks of every group in each topic of `lanes`, by lane. `pieces`: paths of files that follow each other in
    time."""
    where = pc.field("topic_id").isin(sorted(lanes)) & pc.field("partition").is_valid()
    read = partial(tables.file_batches, POSITIONS, columns=_COLUMNS, where=where, dictionaries=_OWNER)
    return marks_of(map(read, pieces), lanes)


def marks_of(pieces: Iterable[Iterable[pa.RecordBatch]], lanes: Mapping[str, Lanes]) -> dict[Owner, list[Marks]]:
    """The same, of rows of ``group_positions`` in any order in each piece."""
    found: dict[Owner, _Columns] = {}
    for batches in pieces:
        for owner, rows in _by_owner([batch for batch in batches if batch.num_rows]):
            own = lanes[owner[0]]
            marks = found.get(owner) or {name: np.full(len(own.partition), each) for name, each in _START.items()}
            found[owner] = advanced(marks, own, rows, is_share=owner[2] == SHARE)
    names = [each.name for each in fields(Marks)]
    return {
        owner: [Marks(*values) for values in zip(*(marks[name].tolist() for name in names), strict=True)]
        for owner, marks in found.items()
    }


def _by_owner(batches: Sequence[pa.RecordBatch]) -> Iterator[tuple[Owner, _Columns]]:
    """The rows of each group in each topic."""
    if not batches:
        return
    rows = pa.Table.from_batches(batches)
    numbers = {
        "partition": rows["partition"].to_numpy(),
        "at": rows["observed_at"].cast(INT64).to_numpy(),
        "position": rows["position"].fill_null(_NONE).to_numpy(),
        "is_done": pc.equal(rows["lag"], 0).fill_null(fill_value=False).to_numpy(),
        "is_wrong": pc.not_equal(rows["error_code"], 0).fill_null(fill_value=False).to_numpy(),
    }
    for (topic_id, group_id, kind), own in by_names(rows, _OWNER):
        yield (topic_id, group_id, kind), {name: column[own] for name, column in numbers.items()}


def advanced(marks: _Columns, lanes: Lanes, rows: _Columns, *, is_share: bool) -> _Columns:
    """The marks of one group in one topic after more looks. A reading has each partition: one without a row has no
    position."""
    readings, reading = np.unique(rows["at"], return_inverse=True)
    size = max(int(lanes.partition.max()), int(rows["partition"].max())) + 1
    position, is_done = np.full((size, len(readings)), _NONE), np.zeros((size, len(readings)), np.bool_)
    place = rows["partition"], reading
    position[place] = np.where(rows["is_wrong"], _UNKNOWN, rows["position"])
    is_done[place] = rows["is_done"] & ~rows["is_wrong"]
    return _marks(marks, lanes, readings, position[lanes.partition], is_done[lanes.partition], is_share=is_share)


def _marks(
    marks: _Columns, lanes: Lanes, at: Int64Array, position: Int64Array, is_done: BoolArray, *, is_share: bool
) -> _Columns:
    """Of a matrix, lanes by readings. A life begins with the last progress that is below the one known before."""
    known = (position > _UNKNOWN) & (at >= lanes.since[:, None])
    progress, fell = _lives(marks["last"], known, position + _DONE * is_done)
    marks = {name: np.where(fell >= 0, _START[name], column) for name, column in marks.items()}
    known &= np.arange(len(at)) >= fell[:, None]
    there = known & (position >= 0)
    first = np.where(marks["first"] >= 0, marks["first"], _at(position, _first(there), _NONE))
    is_idle = known & (position <= (_NONE if is_share else lanes.idle[:, None]))
    is_begun = there & (position > np.maximum(lanes.begun, first)[:, None])
    is_finished = known & ((position >= lanes.high[:, None]) | (is_done & (at >= lanes.reached_at[:, None])))
    below = _last(there & (position < lanes.low[:, None]))
    return {
        "restarted_at": np.maximum(marks["restarted_at"], _at(at, fell, NEVER_YET)),
        "idle_until": np.maximum(marks["idle_until"], _at(at, _last(is_idle), NEVER_YET)),
        "begun_at": np.minimum(marks["begun_at"], _at(at, _first(is_begun), NEVER)),
        "finished_at": np.minimum(marks["finished_at"], _at(at, _first(is_finished), NEVER)),
        "below_at": np.maximum(marks["below_at"], _at(at, below, NEVER_YET)),
        "below": np.where(below >= 0, _at(position, below, _NONE), marks["below"]),
        "first": first,
        "last": progress,
    }


def _lives(before: Int64Array, known: BoolArray, progress: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The last progress that is known of each lane, and the place where it fell last; -1: nowhere. `before`: the last
    of the piece before."""
    whole = np.column_stack([before, progress])
    newest = np.maximum.accumulate(np.where(known, np.arange(1, known.shape[1] + 1), 0), axis=1)
    seen = np.column_stack([before, np.take_along_axis(whole, newest, axis=1)])
    return seen[:, -1], _last(known & (progress < seen[:, :-1]))


def _first(mask: BoolArray) -> Int64Array:
    """The first place of each row; -1: none."""
    place = mask.argmax(axis=1)
    return np.where(mask[np.arange(len(mask)), place], place, -1)


def _last(mask: BoolArray) -> Int64Array:
    place = _first(mask[:, ::-1])
    return np.where(place >= 0, mask.shape[1] - 1 - place, -1)


def _at(values: Int64Array, place: Int64Array, nothing: int) -> Int64Array:
    """The value of each row at its place, of `values` for all rows or by row; `nothing` where there is none."""
    found = values[place] if values.ndim == 1 else values[np.arange(len(place)), place]
    return np.where(place >= 0, found, nothing)
