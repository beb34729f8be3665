"""What is proven of every group in topics that gained partitions, on executors: some topics each.

Looks at positions and the history of state records say what they prove; the better proof counts.

The instants that verdicts rest on (``law.order.Marks``) come out of any number of looks in one pass. A *lane* is one
partition of one expansion of a topic. Looks are read in pieces that follow each other in time; those of one group in
one topic are a matrix of positions, lanes by readings, that carries its marks on from the piece before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, changes_of
from acktrail.format.columns.schemas.table_schemas import INT64, STRING
from acktrail.model.offset_changes import StatusChange
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail_expansion import POSITIONS
from acktrail_expansion.audit.found_expansions import Row, TopicExpansion, by_names
from acktrail_expansion.ordering.order import (
    NEVER,
    NEVER_YET,
    Judged,
    KeyMapping,
    Marks,
    NotProven,
    OrderVerdict,
    judge_by_looks,
    moves_with_every_count,
    sources_of,
    worst,
)
from acktrail_expansion.ordering.share_order import Changes, judge_by_records, placed_at

HISTORY: Final = "delivery_history"
VERDICT_ROWS: Final = pa.schema([pa.field("row", STRING)])
"""Rows as JSON: columns of ``expansion_verdicts``, with instants in microseconds, `last_open` (``law.order.Judged``)
and `placed_at`, the broker's time of the state record with the `first_start_offset`."""
_ORDER: Final = ("topic_id", "group_id", "partition", "state_partition", "record_offset", "first_offset")
_ALL: Final = 2**63 - 1
Place = tuple[int, int]
"""The place of an expansion in its topic, and a partition."""


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


def judge_topics(
    config: TablesConfig,
    positions: Sequence[Sequence[str]],
    history: Sequence[str],
    share: Sequence[tuple[str, Sequence[TopicExpansion]]],
) -> Iterator[pa.Table]:
    """``VERDICT_ROWS`` on some topics, each with its expansions: a row for every destination of each group that has a
    position or a state in its topic. Paths of files: of `positions` in pieces that follow each other in time, and of
    the `history`."""
    tables, expansions, rows = Tables(config), dict(share), list[Row]()
    marks = read_marks(tables, positions, {name: Lanes.of(own) for name, own in expansions.items()})
    for topic_id, group_id, changes in _read_changes(tables, history, expansions):
        owner = topic_id, group_id, SHARE
        rows += verdict_rows(owner, expansions[topic_id], marks.pop(owner, ()), changes)
    for owner, own in marks.items():
        rows += verdict_rows(owner, expansions[owner[0]], own)
    yield pa.table({"row": pa.array(map(json.dumps, rows), STRING)})


def _read_changes(
    tables: Tables, paths: Sequence[str], expansions: Mapping[str, Sequence[TopicExpansion]]
) -> Iterator[tuple[str, str, Iterator[StatusChange]]]:
    """The changes of each share group in each topic, by partition and in log order."""
    topics = pa.array(sorted(expansions), STRING)
    added, most = np.array([_bounds(expansions[name]) for name in topics.to_pylist()], np.int64).reshape(-1, 2).T
    found = [CHANGE_COLUMNS.empty_table()]
    where = one_of("topic_id", expansions)
    for batch in tables.file_batches(HISTORY, paths, columns=CHANGE_COLUMNS.names, where=where):
        topic = pc.index_in(batch["topic_id"], value_set=topics).to_numpy(zero_copy_only=False)
        matters = (batch["partition"].to_numpy() >= added[topic]) | (batch["first_offset"].to_numpy() < most[topic])
        found.append(pa.Table.from_batches([batch]).filter(pa.array(matters)))
    ordered = pa.concat_tables(found).sort_by([(name, "ascending") for name in _ORDER])
    for (topic_id, group_id), changes in groupby(changes_of(ordered), attrgetter("key.topic_id", "key.group_id")):
        yield topic_id, group_id, changes


def _bounds(own: Sequence[TopicExpansion]) -> tuple[int, int]:
    """From which partition on, and in the others up to before which offset, changes matter."""
    if any(each.partition < own[each.event].old_count for each in destinations(own)):
        return 0, _ALL
    fences = [each.source(partition) for each in own for partition in range(each.old_count)]
    return own[0].old_count, max((max(each.low or 0, each.high or 0, each.before) for each in fences), default=0)


@dataclass(frozen=True, slots=True)
class KeyDestination:
    """A partition that keys moved to in the expansion at place `event`. `direct`: the sources by the counts of it, each
    with the place of the expansion that its records are from before; `earlier`: those by earlier counts, which matter
    where a key has no record in between."""

    event: int
    partition: int
    direct: Sequence[Place]
    earlier: Sequence[Place]
    is_single: bool
    is_moved: bool

    def judged(self, judge: Callable[[Place], Judged]) -> Row:
        """The verdict by those on its sources, as columns of ``expansion_verdicts``."""
        direct, earlier = ([judge(each) for each in own] for own in (self.direct, self.earlier))
        return asdict(worst(direct, earlier, is_single=self.is_single, is_moved=self.is_moved))


def destinations(own: Sequence[TopicExpansion]) -> Iterator[KeyDestination]:
    """Every destination of the expansions of one topic."""
    for event, last in enumerate(own):
        mapping = KeyMapping(last.row["key_mapping"])
        for partition in range(last.new_count):
            sources = sources_of(partition, last.old_count, last.new_count, mapping)
            if sources:
                yield KeyDestination(
                    event=event,
                    partition=partition,
                    direct=[(event, source) for source in sources],
                    earlier=[each for each in _earlier(own[: event + 1], partition, mapping) if each[1] not in sources],
                    is_single=last.row["is_single"],
                    is_moved=moves_with_every_count(partition, last.old_count, last.new_count, mapping),
                )


def _earlier(own: Sequence[TopicExpansion], partition: int, mapping: KeyMapping) -> Iterator[Place]:
    """Where it is not known whether an earlier expansion was one step, keys can have come from each old partition."""
    *before, last = own
    if not all(each.row["is_single"] for each in before):
        yield from ((len(before), each) for each in range(last.old_count) if each != partition)
    for place, each in enumerate(before):
        for source in sources_of(partition, each.old_count, last.new_count, mapping):
            yield place, source


def verdict_rows(
    owner: Owner, own: Sequence[TopicExpansion], marks: Sequence[Marks], changes: Iterable[StatusChange] = ()
) -> Iterator[Row]:
    """A row for every destination of one group in a topic. `marks`: by lane; `changes`: of a share group, by partition,
    and of each in log order."""
    _, group_id, group_type = owner
    by_partition = {number: list(found) for number, found in groupby(changes, attrgetter("key.partition"))}
    evidence = _Evidence(own, marks, by_partition, is_share=group_type == SHARE)
    for each in destinations(own):
        yield {
            **{name: own[each.event].row[name] for name in ("cluster_id", "run_id", "event_id", "topic_id", "topic")},
            "group_id": group_id,
            "group_type": group_type,
            "partition": each.partition,
            **evidence.of(each),
        }


class _Evidence:
    """What is shown of one group in a topic."""

    def __init__(
        self, own: Sequence[TopicExpansion], marks: Sequence[Marks], changes: Mapping[int, Changes], *, is_share: bool
    ) -> None:
        self._own, self._changes, self._is_share = own, changes, is_share
        self._begins = [0, *accumulate(each.new_count for each in own)]
        self._marks = marks or [Marks()] * self._begins[-1]

    def of(self, each: KeyDestination) -> Row:
        """The better proof of one destination: by looks, or by state records of a share group."""
        seen = each.judged(partial(self._by_looks, each))
        if not self._changes:
            return seen
        shown = each.judged(partial(self._by_records, each)) | self._placed(each)
        is_against = shown["verdict"] == OrderVerdict.BROKEN or shown["reason"] == NotProven.RESET
        return shown | seen if seen["verdict"] == OrderVerdict.SAFE and not is_against else shown

    def _by_looks(self, to: KeyDestination, source: Place) -> Judged:
        destination, of = (self._marks[self._begins[event] + n] for event, n in ((to.event, to.partition), source))
        return judge_by_looks(destination, of, self._own[source[0]].source(source[1]), is_share=self._is_share)

    def _by_records(self, to: KeyDestination, source: Place) -> Judged:
        own, changes = self._changes.get(to.partition, ()), self._changes.get(source[1], ())
        begins = self._own[to.event].begins(to.partition)
        return judge_by_records(own, begins, changes, self._own[source[0]].source(source[1]))

    def _placed(self, to: KeyDestination) -> Row:
        """Where the group was placed first in a new partition."""
        is_new = to.partition >= self._own[to.event].old_count
        found = placed_at(self._changes.get(to.partition, ())) if is_new else None
        if found is None:
            return {}
        offset, at = found
        return {"first_start_offset": offset, "placed_at": (at.timestamp_ms or 0) * 1_000}


@dataclass(frozen=True, slots=True)
class Lanes:
    """The partitions of the expansions of one topic, expansion by expansion. Of each: the last look before the
    expansion, in microseconds; up to where a group has not begun for certain, and from where it has; the source's
    fence; and from when on nothing left means that all below its high end is finished, in microseconds."""

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
    where = one_of("topic_id", lanes) & pc.field("partition").is_valid()
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
