"""What the exported state records, and resets that acktrail made, show of the share groups that an audit judges.

A start offset is no progress: Kafka moves it with the next write after records are finished. A group that acknowledged
offsets 0 to 59 can stand at start offset 26 for good: its newest state record has a batch (26, 59, acknowledged). It is
below a fence at 60, and nothing below that fence is unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.look_columns import microseconds
from acktrail.columnar.expansion.position_matrix import AuditedTopic
from acktrail.columnar.expansion.share_evidence import CLOCKS_US, ShareEvidence, WorkColumns
from acktrail.expansions.audited_groups import AuditPlan
from acktrail.expansions.found_expansions import FencedTopicExpansion
from acktrail.model.expansion.ordering import OrderingReason, OrderingVerdict
from acktrail.tables.audited_expansions import first_offsets
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.open_records_reader import OpenWhenBegun, open_when_begun

_DAY_US: Final = 86_400_000_000
"""How long before the first expansion records and gaps of the export do not matter: its new offsets were not there."""
_NEVER: Final = np.iinfo(np.int64).max
_RECORDS: Final = "state_records"
_COLUMNS: Final = (
    "group_id", "topic_id", "partition", "state_partition", "offset", "timestamp_ms", "record_type", "snapshot_epoch",
    "leader_epoch", "start_offset", "create_timestamp_ms", "write_timestamp_ms", "batches", "decode_status",
)  # fmt: skip
_READABLE: Final = pa.array(["decoded", "unknown_type"])
_RESETS: Final = "reset_executions"
_NOT_SENT: Final = pa.array(["FAILED", "NOT_ATTEMPTED", "LEFT_OUT"])


def with_recorded_work(tables: Tables, plan: AuditPlan, oldest: Mapping[str, int]) -> AuditPlan:
    """`plan` with what is known of its share groups. `oldest`: by topic id, when the last look before its first
    expansion was, in microseconds. Only the state records since then are read."""
    topics = [topic for topic in plan.topics if topic.groups[1]]
    since = min((oldest[topic.topic_id] for topic in topics), default=_NEVER) - _DAY_US
    if not topics:
        return plan
    places = SharePlaces(topics)
    found = _Recorded(places, topics)
    records = tables.snapshot(_RECORDS)
    if records is not None:
        is_recent = (pc.field("timestamp_ms") >= since // 1_000) | pc.field("timestamp_ms").is_null()
        is_own = pc.field("group_id").isin(places.groups) & pc.field("topic_id").isin(places.topic_ids)
        where = is_recent & (is_own | ~pc.field("decode_status").isin(_READABLE))
        for batch in records.batches(columns=list(_COLUMNS), where=where):
            found.take(batch)
    found.blind += _gaps(tables, since)
    resets = tables.snapshot(_RESETS)
    if resets is not None:
        is_sent = pc.field("group_id").isin(places.groups) & ~pc.field("status").isin(_NOT_SENT)
        columns = ["group_id", "topic_id", "partition", "verified_at"]
        for batch in resets.batches(columns=columns, where=is_sent & pc.field("verified_at").is_valid()):
            found.take_resets(places.of(batch), microseconds(batch["verified_at"]))
    evidence = {topic.topic_id: own for topic, own in zip(topics, found.evidence(), strict=True)}
    return replace(plan, topics=tuple(replace(topic, evidence=evidence.get(topic.topic_id)) for topic in plan.topics))


def _gaps(tables: Tables, since: int) -> list[tuple[int, int]]:
    """State partition and first offset of every gap of the export that was found since then."""
    rows = tables.read("export_ranges", columns=["state_partition", "gap_first", "exported_at"])
    rows = rows.filter(pc.is_valid(rows["gap_first"]))
    numbers = zip(*(rows[name].to_pylist() for name in ("state_partition", "gap_first")), strict=True)
    return [gap for gap, at in zip(numbers, microseconds(rows["exported_at"]).tolist(), strict=True) if at > since]


class SharePlaces:
    """A number for each share partition of the groups of some topics."""

    def __init__(self, topics: Sequence[AuditedTopic]) -> None:
        self.topic_ids = pa.array([topic.topic_id for topic in topics], pa.string())
        self.groups = pa.array(sorted({name for topic in topics for name in topic.groups[1]}), pa.string())
        self.partitions = np.array([topic.partitions for topic in topics], np.int64)
        sizes = np.array([len(topic.groups[1]) for topic in topics], np.int64) * self.partitions
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
        self._base = np.full((len(topics), len(self.groups)), -1, np.int64)
        for number, topic in enumerate(topics):
            own = pc.index_in(pa.array(topic.groups[1], pa.string()), value_set=self.groups).to_numpy()
            self._base[number, own] = self.bounds[number] + np.arange(len(own)) * topic.partitions

    def of(self, rows: pa.RecordBatch) -> Int64Array:
        """The number of each row's share partition; -1: none of them."""
        topic, group = (
            pc.fill_null(pc.index_in(rows[name], value_set=known), -1).to_numpy().astype(np.int64)
            for name, known in (("topic_id", self.topic_ids), ("group_id", self.groups))
        )
        partition = rows["partition"].fill_null(-1).to_numpy().astype(np.int64)
        base = self._base[topic, group]
        fits = (topic >= 0) & (group >= 0) & (base >= 0) & (partition >= 0) & (partition < self.partitions[topic])
        return np.where(fits, base + partition, -1)


class _Recorded:
    """State records as they come, in any order. `blind`: state partitions, each with the offset of a record that is
    missing or cannot be read."""

    def __init__(self, places: SharePlaces, topics: Sequence[AuditedTopic]) -> None:
        self._places, self._topics = places, topics
        most, size = max(len(topic.expansions) for topic in topics), int(places.bounds[-1])
        self.blind: list[tuple[int, int]] = []
        self._resets = np.full(size, MISSING, np.int64)
        self._begins = np.full((most, size), _NEVER, np.int64)
        for topic, (begin, end) in zip(topics, self._bounds(), strict=True):
            for event, each in enumerate(topic.expansions):
                new = np.zeros(each.new_count - each.old_count, np.int64)
                low = np.concatenate([np.where(each.low < 0, _NEVER, each.low), new])
                later = np.full(topic.partitions - each.new_count, _NEVER, np.int64)
                self._begins[event, begin:end] = np.tile(np.concatenate([low, later]), len(topic.groups[1]))
        self._at, self._offset, self._idle = (np.full((most, size), _NEVER, np.int64) for _ in range(3))
        self._state_partition = np.full(size, MISSING, np.int64)

    def _bounds(self) -> list[tuple[int, int]]:
        return list(pairwise(self._places.bounds.tolist()))

    def take(self, batch: pa.RecordBatch) -> None:
        """Some state records."""
        blind = batch.filter(pc.invert(pc.is_in(batch["decode_status"], value_set=_READABLE)))
        self.blind += zip(blind["state_partition"].to_pylist(), blind["offset"].to_pylist(), strict=True)
        place = self._places.of(batch)
        rows = np.flatnonzero(place >= 0)
        if not len(rows):
            return
        own, place = batch.take(pa.array(rows)), place[rows]
        offset, shown = own["offset"].to_numpy(), _shown(own)
        written = own["timestamp_ms"].fill_null(0).to_numpy() * 1_000
        is_snapshot = pc.equal(own["record_type"], "snapshot").fill_null(fill_value=False)
        is_whole = is_snapshot.to_numpy(zero_copy_only=False)
        self._state_partition[place] = own["state_partition"].to_numpy()
        for event, begins in enumerate(self._begins):
            works = shown >= begins[place]
            np.minimum.at(self._at[event], place[works], written[works])
            np.minimum.at(self._offset[event], place[works], offset[works])
            idles = is_whole & ~works
            np.minimum.at(self._idle[event], place[idles], offset[idles])
        is_reset = _is_reset(own)
        self.take_resets(place[is_reset], written[is_reset] + CLOCKS_US)

    def take_resets(self, place: Int64Array, at: Int64Array) -> None:
        """Resets of share partitions, by their numbers; -1 is none of them."""
        np.maximum.at(self._resets, place[place >= 0], at[place >= 0])

    def evidence(self) -> list[ShareEvidence]:
        """What is known, by topic."""
        is_first = self._is_first()
        at = np.where(self._at == _NEVER, MISSING, self._at)
        found = []
        for topic, (begin, end) in zip(self._topics, self._bounds(), strict=True):
            shape = len(topic.groups[1]), topic.partitions
            work = tuple(
                WorkColumns(at=at[event, begin:end].reshape(shape), is_first=is_first[event, begin:end].reshape(shape))
                for event in range(len(topic.expansions))
            )
            found.append(ShareEvidence(work=work, resets=self._resets[begin:end].reshape(shape)))
        return found

    def _is_first(self) -> BoolArray:
        """Whether the first record that shows work comes after a snapshot, which is a whole state, without any, and no
        record before it is missing or cannot be read. Without that snapshot Kafka may have pruned earlier work before
        the first export."""
        seen = np.full(self._offset.shape, _NEVER, np.int64)
        for state_partition, own in groupby(sorted(self.blind), key=lambda each: each[0]):
            seen[:, self._state_partition == state_partition] = min(offset for _, offset in own)
        return np.asarray((self._idle < self._offset) & (self._offset < _NEVER) & (seen > self._offset))


def _shown(rows: pa.RecordBatch) -> Int64Array:
    """The highest offset that each state record shows delivered or passed; -1: none."""
    shown = np.maximum(rows["start_offset"].fill_null(0).to_numpy() - 1, MISSING)
    batches = rows["batches"]
    row = pc.list_parent_indices(batches).to_numpy()
    last = pc.struct_field(pc.list_flatten(batches), "last_offset").fill_null(_NEVER).to_numpy()
    np.maximum.at(shown, row, last)
    return np.asarray(shown, np.int64)


def _is_reset(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Whether each record is a reset, as ``ShareSnapshot.is_initialization`` of a state that was there, or removes
    it."""
    created, written = rows["create_timestamp_ms"], rows["write_timestamp_ms"]
    is_new = pc.and_(pc.equal(created, written), pc.equal(rows["leader_epoch"], 0))
    is_new = pc.and_(is_new, pc.greater(rows["snapshot_epoch"], 0))
    is_empty = pc.equal(pc.fill_null(pc.list_value_length(rows["batches"]), 0), 0)
    is_new = pc.and_(is_new, pc.and_(is_empty, pc.equal(rows["record_type"], "snapshot")))
    is_gone = pc.equal(rows["record_type"], "tombstone")
    found = pc.or_(pc.fill_null(is_new, fill_value=False), pc.fill_null(is_gone, fill_value=False))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


_BY_START: Final = pa.array([OrderingVerdict.VIOLATION.value, OrderingVerdict.POSSIBLE_VIOLATION.value])
"""Verdicts that say that a source was not finished."""
_SHARE: Final = "share"
_MOST: Final = 1_000
"""Rows that the history is asked about, each with two look-ups; of the others nothing is shown."""


def with_shown_open(tables: Tables, ordering: pa.Table, expansions: Sequence[FencedTopicExpansion]) -> pa.Table:
    """Rows of ``ordering_audits`` in which `remaining` of a share group is the number of records that state records
    show unfinished when the destination was begun (null: not shown). Where they show none, a verdict that says more is
    INDETERMINATE."""
    is_share = pc.equal(ordering["group_type"], _SHARE)
    asked = pc.and_(is_share, pc.is_in(ordering["verdict"], value_set=_BY_START)).combine_chunks()
    places = np.flatnonzero(asked.to_numpy(zero_copy_only=False))
    left = _left(tables, ordering.take(pa.array(places[:_MOST])), {each.event_id: each for each in expansions})
    remaining = np.full(ordering.num_rows, -1, np.int64)
    for place, row in zip(places.tolist(), ordering.select(_KEY).take(pa.array(places)).to_pylist(), strict=True):
        remaining[place] = left.get(tuple(row.values()), 0)
    is_shown = pa.array(remaining > 0)
    is_doubted = pc.and_(asked, pc.invert(is_shown))
    columns = {
        "remaining": pc.if_else(is_share, pa.array(remaining, mask=remaining <= 0), ordering["remaining"]),
        "verdict": pc.if_else(is_doubted, OrderingVerdict.INDETERMINATE.value, ordering["verdict"]),
        "reason": pc.if_else(is_doubted, OrderingReason.NONE_SHOWN_OPEN.value, ordering["reason"]),
        "sources_violated": pc.if_else(is_doubted, pa.scalar(0, pa.int32()), ordering["sources_violated"]),
    }
    for name, values in columns.items():
        field = ordering.schema.field(name)
        ordering = ordering.set_column(ordering.column_names.index(name), field, values.cast(field.type))
    return ordering


_KEY: Final = ["event_id", "group_id", "partition", "source_partition"]


def _left(
    tables: Tables, rows: pa.Table, expansions: dict[str, FencedTopicExpansion]
) -> dict[tuple[str, str, int, int], int]:
    """The unfinished records of the sources, by event, group, destination and source."""
    found = {}
    for event_id in pc.unique(rows["event_id"]).to_pylist():
        own = rows.filter(pc.equal(rows["event_id"], event_id)).to_pylist()
        for each in open_when_begun(tables, own, _begins(expansions[event_id])):
            found[_key(event_id, each)] = each.left.open_records
    return found


def _begins(expansion: FencedTopicExpansion) -> dict[int, int | None]:
    fences = ({"partition": n, "fence_high": None if at < 0 else at} for n, at in enumerate(expansion.high.tolist()))
    return first_offsets({"old_count": expansion.old_count, "new_count": expansion.new_count}, fences)


def _key(event_id: str, found: OpenWhenBegun) -> tuple[str, str, int, int]:
    return event_id, found.group_id, found.partition, found.source_partition
