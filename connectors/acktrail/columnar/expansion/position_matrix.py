"""Positions of groups as matrices: by group and partition of a topic, and reading. Rows are put in their places as they
come, in any order; nothing is sorted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.look_columns import microseconds
from acktrail.columnar.expansion.share_evidence import ShareEvidence
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import NO_POSITION

UNKNOWN_POSITION: Final = -2
"""In place of a position: not known."""
SHARE: Final = "share"
POSITION_NAMES: Final = ("group_id", "group_type", "topic_id")
"""Columns of ``group_positions`` that a matrix reads as dictionaries."""
POSITION_COLUMNS: Final = (*POSITION_NAMES, "observed_at", "partition", "position", "error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedExpansion:
    """One expansion with its fences by partition below `old_count` (MISSING where not known), times in microseconds.
    `record_end`: one past the newest offset below each low fence that is a record's for certain (0: none is known).
    `is_finished`: and no other record from before the expansion comes after that one. `gone_low`, `gone_high`: when the
    retention had taken all known records below each low fence, and all below each high one (None: never)."""

    old_count: int
    new_count: int
    settles_at: int
    low: Int64Array
    high: Int64Array
    record_end: Int64Array
    is_finished: BoolArray | None = None
    gone_low: Int64Array | None = None
    gone_high: Int64Array | None = None

    @property
    def sources(self) -> tuple[Int64Array, Int64Array]:
        """The fences of partitions as sources, which end with their last record: what follows it up to a fence is no
        record."""
        if self.is_finished is None:
            return self.low, self.high
        low, high = (np.where(self.is_finished, self.record_end, each) for each in (self.low, self.high))
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTopic:
    """One topic with its expansions, oldest first, and the groups that have positions in it: those that commit offsets,
    and share groups. `first_group`: the numbers that results have for the first of each; the others follow. `evidence`:
    what state records show of the share groups, in their order; None: nothing."""

    topic_id: str
    mapping: KeyMapping
    expansions: tuple[AuditedExpansion, ...]
    groups: tuple[tuple[str, ...], tuple[str, ...]]
    first_group: tuple[int, int]
    evidence: ShareEvidence | None = None

    @property
    def partitions(self) -> int:
        """How many partitions the newest expansion led to."""
        return self.expansions[-1].new_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingAxis:
    """The readings of one kind of groups, in time: `at` in microseconds, ascending, shape (m,). `described`: whether
    the look that a reading belongs to has each topic; shape (topics, m)."""

    at: Int64Array
    described: BoolArray


class PositionMatrix:
    """The positions of all groups of `topics`, for `axes` of committing groups and of share groups. Takes eight bytes
    for each group, partition and reading."""

    def __init__(self, topics: Sequence[AuditedTopic], axes: tuple[ReadingAxis, ReadingAxis]) -> None:
        self._topics, self._axes = topics, axes
        self._topic = {topic.topic_id: number for number, topic in enumerate(topics)}
        self._sides = tuple(_Side(topics, axis, kind) for kind, axis in enumerate(axes))

    def take(self, batch: pa.RecordBatch) -> None:
        """Put rows of ``POSITION_COLUMNS`` in their places."""
        topic = _mapped(batch["topic_id"], self._topic)
        rows = np.flatnonzero(topic >= 0)
        if len(rows):
            self._put(batch, rows, topic[rows])
        if batch["partition"].null_count:
            self._fail(batch.filter(batch["partition"].is_null()))

    def _put(self, batch: pa.RecordBatch, rows: Int64Array, topic: Int64Array) -> None:
        share = _mapped(batch["group_type"], {SHARE: 1}, other=0)[rows]
        for kind, side in enumerate(self._sides):
            own = np.flatnonzero(share == kind)
            if len(own):
                side.put(batch, rows[own], topic[own])

    def _fail(self, rows: pa.RecordBatch) -> None:
        share = _mapped(rows["group_type"], {SHARE: 1}, other=0)
        for kind, side in enumerate(self._sides):
            side.fail(rows.filter(pa.array(share == kind)))

    def blocks(self) -> Iterator[tuple[AuditedTopic, int, npt.NDArray[np.int64]]]:
        """Each topic with groups of a kind (1: share groups), and their positions: shape (groups, partitions, m)."""
        for kind, side in enumerate(self._sides):
            for number, topic in enumerate(self._topics):
                if topic.groups[kind]:
                    yield topic, kind, side.block(number)


class _Side:
    """The matrix of one kind of groups."""

    def __init__(self, topics: Sequence[AuditedTopic], axis: ReadingAxis, kind: int) -> None:
        self._axis = axis
        names = sorted({name for topic in topics for name in topic.groups[kind]})
        self._group = {name: number for number, name in enumerate(names)}
        self._partitions = np.array([topic.partitions for topic in topics], np.int64)
        self._groups = [np.array([self._group[name] for name in topic.groups[kind]], np.int64) for topic in topics]
        sizes = np.array([len(own) for own in self._groups], np.int64) * self._partitions
        ends = np.cumsum(sizes)
        self._begins = ends - sizes
        self._base = np.full((len(topics), len(names) + 1), -1, np.int64)
        for number, own in enumerate(self._groups):
            self._base[number, own] = self._begins[number] + np.arange(len(own)) * self._partitions[number]
        width = len(axis.at)
        rows = int(ends[-1]) if len(ends) else 0
        self._positions = np.full((rows, width), NO_POSITION, np.int64)
        for number, (begin, size) in enumerate(zip(self._begins.tolist(), sizes.tolist(), strict=True)):
            self._positions[begin : begin + size, ~axis.described[number]] = UNKNOWN_POSITION
        self._failed = np.zeros((len(names), width), np.bool_)

    def put(self, batch: pa.RecordBatch, rows: Int64Array, topic: Int64Array) -> None:
        """Take in the positions of some rows of a batch."""
        group = _mapped(batch["group_id"], self._group)[rows]
        partition = _numbers(batch["partition"], rows, -1)
        base = self._base[topic, group]  # no group is the last one, which has no place
        reading, is_reading = self._reading(microseconds(batch["observed_at"])[rows])
        kept = (base >= 0) & (partition >= 0) & (partition < self._partitions[topic]) & is_reading
        place = (base + partition) * len(self._axis.at) + reading
        position = np.maximum(_numbers(batch["position"], rows, NO_POSITION), NO_POSITION)
        position = np.where(_numbers(batch["error_code"], rows, 0) != 0, UNKNOWN_POSITION, position)
        if not kept.all():
            place, position = place[kept], position[kept]
        self._positions.reshape(-1)[place] = position

    def fail(self, rows: pa.RecordBatch) -> None:
        """Take in groups that could not be asked."""
        group = _mapped(rows["group_id"], self._group)
        reading, is_reading = self._reading(microseconds(rows["observed_at"]))
        kept = is_reading & (group >= 0)
        self._failed[group[kept], reading[kept]] = True

    def block(self, topic: int) -> npt.NDArray[np.int64]:
        """The positions of one topic."""
        groups, partitions = self._groups[topic], int(self._partitions[topic])
        begin = int(self._begins[topic])
        found = self._positions[begin : begin + len(groups) * partitions]
        shaped = found.reshape(len(groups), partitions, len(self._axis.at))
        for number, group in enumerate(groups.tolist()):
            if self._failed[group].any():
                shaped[number][:, self._failed[group]] = UNKNOWN_POSITION
        return shaped

    def _reading(self, at: Int64Array) -> tuple[Int64Array, BoolArray]:
        """The reading of each instant, and whether there is such a one. Rows of one reading mostly follow each other,
        and each stretch of them is looked up once."""
        axis = self._axis.at
        if not len(axis) or not len(at):
            return np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
        begins = np.concatenate([[0], 1 + np.flatnonzero(at[1:] != at[:-1])])
        place = np.minimum(np.searchsorted(axis, at[begins]), len(axis) - 1)
        lengths = np.diff(np.concatenate([begins, [len(at)]]))
        return np.repeat(place, lengths), np.repeat(axis[place] == at[begins], lengths)


def _numbers(column: pa.Array, rows: Int64Array, missing: int) -> Int64Array:
    """The numbers in `rows`; `missing` for null."""
    filled = column.fill_null(missing) if column.null_count else column
    return np.asarray(filled.to_numpy()[rows], np.int64)


def _mapped(column: pa.Array, known: Mapping[str, int], *, other: int = -1) -> Int64Array:
    """The number of each name; `other` for one that is not known, and for none."""
    if not isinstance(column, pa.DictionaryArray):
        column = pc.dictionary_encode(column)
    numbers = np.array([*(known.get(name, other) for name in column.dictionary.to_pylist()), other], np.int64)
    codes = column.indices.fill_null(-1) if column.null_count else column.indices
    return np.asarray(numbers[codes.to_numpy()], np.int64)
