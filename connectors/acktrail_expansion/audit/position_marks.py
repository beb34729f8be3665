"""The instants that verdicts rest on (``law.order.Marks``), out of any number of looks, in one pass on executors.

A *lane* is one group in one partition of one expansion. Looks are read in pieces that follow each other in time; each
piece is a matrix of positions, lanes by readings, and gives marks; marks of neighbours are merged, in any grouping.

Example: 10 at look 1, nothing at look 2, 4 at look 3. Two pieces, (1, 2) and (3), give the same marks as one: the
position that is gone at look 2 begins a new life, so that look 1 proves nothing, and 4 is the first position of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.schemas.schema_types import INT64, STRING
from acktrail.config import TablesConfig
from acktrail.executors import JobStep, Results
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.order import NEVER, Marks

POSITIONS: Final = "group_positions"
SHARE: Final = "share"
_UNKNOWN: Final = -2
"""In place of a position: it was not read."""
_NONE: Final = -1
"""In place of a position: there is none; in place of an instant: no look."""
_DONE: Final = 1 << 60
"""Added to a share group's position where nothing is left: with less than that it has fallen, as after a reset, also
where the start offset has not."""
_FIELDS: Final = {
    "opening": _UNKNOWN, "opened_at": _NONE, "first": _NONE, "last": _UNKNOWN, "restarted_at": _NONE,
    "idle_until": _NONE, "above_at": NEVER, "begun_at": NEVER, "finished_at": NEVER, "below_at": _NONE, "below": _NONE,
}  # fmt: skip
"""The marks of no look. `opening` and `last`: the first and the last progress known since the last restart, `first` the
first that is one; `above_at`: the first look with a position above the destination's beginning, `begun_at` also above
`first`, where the group may have been placed."""
_MARKS: Final = tuple(field.name for field in fields(Marks))
_NUMBERS: Final = ("part", "lane", *_FIELDS)
MARK_ROWS: Final = pa.schema([*((n, STRING) for n in ("group_id", "group_type")), *((n, INT64) for n in _NUMBERS)])
READ_MARKS: Final = JobStep(name="read positions of groups", kinds={"marks": MARK_ROWS})
_CELLS: Final = 8_000_000
"""Of one matrix."""
_NAMES: Final = ("group_id", "group_type", "topic_id")
_COLUMNS: Final = [*_NAMES, "partition", "position", "lag", "observed_at", "error_code"]
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Partitions of expansions, one after the other. `begins` and `ends`: of each expansion its lanes, by topic and in
    time, of shape (most expansions of a topic, topics), both 0 where there is none. Of each lane: up to where a group
    has not begun for certain, and from where it has; the source's fence; and from when on nothing left means that all
    below its high end is finished. `since`: by topic, the last look before its first expansion. Instants are in
    microseconds."""

    topic_ids: tuple[str, ...]
    begins: Int64Array
    ends: Int64Array
    since: Int64Array
    idle: Int64Array
    begun: Int64Array
    low: Int64Array
    high: Int64Array
    reached_at: Int64Array


@dataclass(frozen=True, slots=True)
class LaneMarks:
    """Marks by `key` (group, then lane), ascending."""

    key: Int64Array
    columns: _Columns

    @classmethod
    def nothing(cls) -> LaneMarks:
        """Those of no look."""
        return cls(np.empty(0, np.int64), {name: np.empty(0, np.int64) for name in _FIELDS})


def read_marks(config: TablesConfig, lanes: Lanes, share: tuple[int, Sequence[Sequence[str]]]) -> Results:
    """``marks``: rows of ``MARK_ROWS`` of a share: its number, and its pieces in time, each the paths of files."""
    tables, (part, pieces) = Tables(config), share
    read = (tables.file_batches(POSITIONS, paths, columns=_COLUMNS, dictionaries=_NAMES) for paths in pieces)
    yield "marks", mark_rows(lanes, part, read)


def mark_rows(lanes: Lanes, part: int, pieces: Iterable[Iterable[pa.RecordBatch]]) -> pa.Table:
    """Rows of ``MARK_ROWS`` of pieces that follow each other in time, of rows of ``group_positions`` in any order."""
    groups: dict[tuple[str, str], int] = {}
    found = LaneMarks.nothing()
    for piece in pieces:
        rows = _Rows(groups, lanes)
        for batch in piece:
            rows.take(batch)
        for own in rows.marks():
            found = merged(found, own)
    return _as_rows(found, groups, len(lanes.idle), part)


def _as_rows(found: LaneMarks, groups: Mapping[tuple[str, str], int], size: int, part: int) -> pa.Table:
    group, lane = np.divmod(found.key, max(1, size))
    names = [pa.array([each[place] for each in groups], STRING).take(pa.array(group)) for place in (0, 1)]
    columns = [*names, pa.array(np.full(len(lane), part)), pa.array(lane), *map(pa.array, found.columns.values())]
    return pa.Table.from_arrays(columns, schema=MARK_ROWS)


def gathered(rows: pa.Table, lanes: Lanes) -> dict[tuple[str, str], dict[int, Marks]]:
    """The marks of all shares, merged in the order of their numbers: by group id and type, then by lane."""
    groups: dict[tuple[str, str], int] = {}
    found, size = LaneMarks.nothing(), len(lanes.idle)
    for part in sorted(pc.unique(rows["part"]).to_pylist()):
        own = rows.filter(pc.equal(rows["part"], part)).combine_chunks()
        key = _group_codes(own, groups) * size + own["lane"].to_numpy()
        order = np.argsort(key)
        found = merged(found, LaneMarks(key[order], {name: own[name].to_numpy()[order] for name in _FIELDS}))
    by_group: dict[tuple[str, str], dict[int, Marks]] = {name: {} for name in groups}
    names, numbers = [*groups], zip(*(found.columns[name].tolist() for name in _MARKS), strict=True)
    for key, values in zip(found.key.tolist(), numbers, strict=True):
        by_group[names[key // size]][key % size] = Marks(*values)
    return by_group


def merged(earlier: LaneMarks, later: LaneMarks) -> LaneMarks:
    """The marks of looks one after the other. Associative; those of no look change nothing."""
    if not len(earlier.key):
        return later
    key = np.union1d(earlier.key, later.key)
    a, b = _on(earlier, key), _on(later, key)
    is_cut = (a["last"] > _UNKNOWN) & (b["opening"] > _UNKNOWN) & (b["opening"] < a["last"])
    is_new = is_cut | (b["restarted_at"] >= 0)
    begun = np.where(b["first"] > a["first"], b["above_at"], b["begun_at"])
    joined = {
        "opening": np.where(a["opening"] > _UNKNOWN, a["opening"], b["opening"]),
        "opened_at": np.where(a["opening"] > _UNKNOWN, a["opened_at"], b["opened_at"]),
        "first": np.where(a["first"] >= 0, a["first"], b["first"]),
        "last": np.where(b["last"] > _UNKNOWN, b["last"], a["last"]),
        "restarted_at": a["restarted_at"],
        "idle_until": np.maximum(a["idle_until"], b["idle_until"]),
        "above_at": np.minimum(a["above_at"], b["above_at"]),
        "begun_at": np.minimum(a["begun_at"], np.where(a["first"] >= 0, begun, b["begun_at"])),
        "finished_at": np.minimum(a["finished_at"], b["finished_at"]),
        "below_at": np.maximum(a["below_at"], b["below_at"]),
        "below": np.where(b["below_at"] >= 0, b["below"], a["below"]),
    }
    columns = {name: np.where(is_new, b[name], joined[name]) for name in _FIELDS}
    columns["restarted_at"] = np.where(is_cut & (b["restarted_at"] < 0), b["opened_at"], columns["restarted_at"])
    return LaneMarks(key, columns)


def _on(marks: LaneMarks, key: Int64Array) -> _Columns:
    place = np.searchsorted(key, marks.key)
    columns = {name: np.full(len(key), nothing, np.int64) for name, nothing in _FIELDS.items()}
    for name, column in columns.items():
        column[place] = marks.columns[name]
    return columns


class _Rows:
    """The rows of one piece, as numbers."""

    def __init__(self, groups: dict[tuple[str, str], int], lanes: Lanes) -> None:
        self._groups, self._lanes = groups, lanes
        self._topics = {name: number for number, name in enumerate(lanes.topic_ids)}
        self._pieces: list[_Columns] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Some rows; those of other topics, and from before the expansions, are left out."""
        topic = _codes(batch["topic_id"], self._topics)
        at = batch["observed_at"].cast(INT64).to_numpy()
        is_valid = batch["partition"].is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero((topic >= 0) & (at >= self._lanes.since[topic]) & is_valid)
        if not len(rows):
            return
        batch, topic, at = batch.take(pa.array(rows)), topic[rows], at[rows]
        is_wrong = batch["error_code"].fill_null(0).to_numpy() != 0
        group, partition = _group_codes(batch, self._groups), batch["partition"].to_numpy().astype(np.int64)
        self._pieces.append(
            {
                "pair": group * len(self._topics) + topic,
                "at": at,
                "partition": partition,
                "position": np.where(is_wrong, _UNKNOWN, batch["position"].fill_null(_NONE).to_numpy()),
                "is_done": ~is_wrong & (batch["lag"].fill_null(_NONE).to_numpy() == 0),
            }
        )

    def marks(self) -> Iterator[LaneMarks]:
        """Marks of groups of each kind, some pairs of group and topic at a time."""
        if not self._pieces:
            return
        rows = {name: np.concatenate([each[name] for each in self._pieces]) for name in self._pieces[0]}
        is_share = np.array([kind == SHARE for _, kind in self._groups])[rows["pair"] // len(self._topics)]
        for kind in (False, True):
            own = np.flatnonzero(is_share == kind)
            if len(own):
                yield from self._of_kind({name: column[own] for name, column in rows.items()}, is_share=kind)

    def _of_kind(self, rows: _Columns, *, is_share: bool) -> Iterator[LaneMarks]:
        """Rows of one group, topic and reading mostly follow each other: what they have in common is looked up once."""
        pair, at = rows["pair"], rows["at"]
        begins = np.concatenate([[0], 1 + np.flatnonzero((pair[1:] != pair[:-1]) | (at[1:] != at[:-1]))])
        lengths = np.diff(np.concatenate([begins, [len(pair)]]))
        pairs, own = np.unique(pair[begins], return_inverse=True)
        readings, reading = np.unique(at[begins], return_inverse=True)
        rows["own"], rows["reading"] = np.repeat(own, lengths), np.repeat(reading, lengths)
        most = int((self._lanes.ends - self._lanes.begins).max(initial=1))
        size = max(1, _CELLS // (most * len(readings)))
        for first in range(0, len(pairs), size):
            chosen = slice(None) if len(pairs) <= size else (rows["own"] >= first) & (rows["own"] < first + size)
            some = {name: column[chosen] for name, column in rows.items()}
            some["own"] = some["own"] - first
            yield from self._of_pairs(pairs[first : first + size], readings, some, is_share=is_share)

    def _of_pairs(
        self, pairs: Int64Array, readings: Int64Array, rows: _Columns, *, is_share: bool
    ) -> Iterator[LaneMarks]:
        lanes, (group, topic) = self._lanes, np.divmod(pairs, len(self._topics))
        sizes = (lanes.ends - lanes.begins).max(axis=0)[topic]
        start = np.concatenate([[0], np.cumsum(sizes)])
        is_read = np.zeros((len(pairs), len(readings)), np.bool_)
        is_read[rows["own"], rows["reading"]] = True
        position = np.repeat(np.where(is_read, _NONE, _UNKNOWN), sizes, axis=0)
        is_done = np.zeros(position.shape, np.bool_)
        fits = np.flatnonzero(rows["partition"] < sizes[rows["own"]])
        place = start[rows["own"][fits]] + rows["partition"][fits], rows["reading"][fits]
        position[place], is_done[place] = rows["position"][fits], rows["is_done"][fits]
        own = np.repeat(np.arange(len(pairs)), sizes)
        partition = np.arange(len(own)) - start[own]
        for begins, ends in zip(lanes.begins, lanes.ends, strict=True):
            chosen = np.flatnonzero(partition < (ends - begins)[topic[own]])
            lane = begins[topic[own[chosen]]] + partition[chosen]
            finished = position[chosen] >= lanes.high[lane][:, None]
            finished |= is_done[chosen] & (readings >= lanes.reached_at[lane][:, None])
            idle = np.full(len(lane), _NONE) if is_share else lanes.idle[lane]
            progress = position[chosen] + _DONE * is_done[chosen]
            found = _marks(position[chosen], progress, readings, finished, idle, lanes.begun[lane], lanes.low[lane])
            key = group[own[chosen]] * len(lanes.idle) + lane
            order = np.argsort(key)
            yield LaneMarks(key[order], {name: column[order] for name, column in found.items()})


def _marks(
    position: Int64Array,
    progress: Int64Array,
    readings: Int64Array,
    finished: BoolArray,
    idle: Int64Array,
    begun: Int64Array,
    low: Int64Array,
) -> _Columns:
    """Marks of a matrix, lanes by readings. A life begins with the last progress that is below the one known before."""
    lanes, places = np.arange(len(position)), np.arange(len(readings))
    known = position > _UNKNOWN
    newest = np.maximum.accumulate(np.where(known, places, -1), axis=1)
    before = np.where(newest >= 0, np.take_along_axis(progress, np.maximum(newest, 0), axis=1), _UNKNOWN)
    falls = np.zeros(position.shape, np.bool_)
    falls[:, 1:] = known[:, 1:] & (progress[:, 1:] < before[:, :-1])
    fell = _last(falls)
    known &= places >= fell[:, None]
    there = known & (position >= 0)
    first = _at(position, _first(there), _NONE)
    is_above = there & (position > begun[:, None])
    below = _last(there & (position < low[:, None]))
    opened = _first(known)
    return {
        "opening": _at(progress, opened, _UNKNOWN),
        "opened_at": _at(readings, opened, _NONE),
        "first": first,
        "last": before[lanes, -1],
        "restarted_at": _at(readings, fell, _NONE),
        "idle_until": _at(readings, _last(known & (position <= idle[:, None])), _NONE),
        "above_at": _at(readings, _first(is_above), NEVER),
        "begun_at": _at(readings, _first(is_above & (position > first[:, None])), NEVER),
        "finished_at": _at(readings, _first(known & finished), NEVER),
        "below_at": _at(readings, below, _NONE),
        "below": _at(position, below, _NONE),
    }


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


def _group_codes(rows: pa.RecordBatch | pa.Table, known: dict[tuple[str, str], int]) -> Int64Array:
    """The number of each row's group, where one that is not known gets the next number."""
    (ids, names), (kinds, types) = (_numbered(rows[name]) for name in ("group_id", "group_type"))
    both = ids * len(types) + kinds
    found, inverse = np.unique(both, return_inverse=True)
    numbers = [known.setdefault((names[each // len(types)], types[each % len(types)]), len(known)) for each in found]
    return np.array(numbers, np.int64)[inverse]


def _numbered(column: pa.Array | pa.ChunkedArray) -> tuple[Int64Array, list[str]]:
    own = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = own if isinstance(own, pa.DictionaryArray) else own.dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), ""]
    return encoded.indices.fill_null(len(names) - 1).to_numpy().astype(np.int64), names


def _codes(column: pa.Array, known: Mapping[str, int]) -> Int64Array:
    """The number of each row's name; -1 for another one, and for none."""
    numbers, names = _numbered(column)
    return np.array([known.get(name, -1) for name in names], np.int64)[numbers]
