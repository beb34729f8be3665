"""What groups last did with each record of a range, from the exported history: acknowledged it, archived it, or it is
not known.

The changes of one share partition are applied in the order of their state records. An acknowledged or archived record
stays so when the start offset moves past it, and when a reset or a deletion starts the state again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import starts_of
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.record_columns import CHANGE_COLUMNS
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.columns.share_partition_keys import key_codes
from acktrail.format.wire.raw_record import RawRecord
from acktrail.history import history_tables
from acktrail.history.record_changes import record_changes
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import OffsetStatusKind
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.tables.records.record_files import DROPPED_BEFORE
from acktrail.times import instant_text

_RECORDS: Final = "state_records"
_LOG_ORDER: Final = [("state_partition", "ascending"), ("offset", "ascending")]
SETTLED_INPUTS: Final = (
    *KEY_COLUMNS,
    *("first_offset", "last_offset", "before_standing", "standing", "delivery_state"),
    *("state_partition", "record_offset", "record_timestamp_ms"),
)
"""The columns of ``DELIVERY_HISTORY`` that `outcome_counts` needs."""
_UNKNOWN: Final = OffsetStatusKind.UNKNOWN.value
_ABSENT: Final = OffsetStatusKind.ABSENT.value
_BELOW_START: Final = OffsetStatusKind.BELOW_START.value
_ACKNOWLEDGED: Final = int(DeliveryState.ACKNOWLEDGED)
_ARCHIVED: Final = int(DeliveryState.ARCHIVED)
_SETTLED: Final = frozenset({_ACKNOWLEDGED, _ARCHIVED})
_NEVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedRange:
    """Offsets of a share partition, both inclusive, those in `hidden` left out; and the place of the newest state
    record that Kafka has of it; `record_offset` None: not known."""

    key: SharePartition
    first_offset: int
    last_offset: int
    state_partition: int | None
    record_offset: int | None
    hidden: tuple[Span, ...] = ()

    @property
    def records(self) -> int:
        """How many records."""
        return RecordCounter(self.hidden).count(self.first_offset, self.last_offset)


class RecordOutcomes:
    """The history of `ranges` in `tables`, one a share partition; ForeignCluster where it is another cluster's. Reads
    ``delivery_history`` once. `state_topic_id`: the state topic that Kafka has; None: not known."""

    def __init__(
        self, tables: Tables, cluster_id: str, state_topic_id: str | None, ranges: Collection[AffectedRange]
    ) -> None:
        ensure_same_cluster(tables, cluster_id, (history_tables.CHANGES, _RECORDS))
        self._tables, self._ranges = tables, tuple(ranges)
        records, snapshot = tables.snapshot(_RECORDS), tables.snapshot(history_tables.CHANGES)
        kept = None if records is None else records.properties.get("state_topic_id")
        self._refusal: str | None = None
        """Why the tables are no history of Kafka's state topic."""
        self._not_kept: str | None = None
        """That older changes were dropped."""
        if kept is not None and state_topic_id not in (None, kept):
            self._refusal = (
                f"the tables hold the records of another state topic (id {kept}; Kafka's has {state_topic_id})"
            )
            return
        if snapshot is None:
            self._refusal = "the tables have no history (acktrail run export, then acktrail run history)"
            return
        kept_from_ms = snapshot.transaction_version(DROPPED_BEFORE)
        if kept_from_ms is not None:
            self._not_kept = f"changes before {instant_text(kept_from_ms)} are not kept (tables maintain --keep)"
        numbers = sorted({own.state_partition for own in ranges if own.state_partition is not None})
        self.positions = history_tables.change_positions(tables, numbers)
        """The offset of the first state record whose changes are not in the history, by state partition."""
        self._doubts: defaultdict[int, list[int]] = defaultdict(list)
        """Offsets of ``unattributed_records``, by state partition."""
        for row in history_tables.unattributed_records(tables, numbers):
            self._doubts[row["state_partition"]].append(row["offset"])
        last = pc.field("last_offset")
        where = (
            one_of("group_id", {own.key.group_id for own in ranges})
            & one_of("topic_id", {own.key.topic_id for own in ranges})
            & (pc.field("first_offset") <= max(own.last_offset for own in ranges))
            & (last.is_null() | (last >= min(own.first_offset for own in ranges)))
            & outcome_filter()
        )
        self._rows = snapshot.read(columns=SETTLED_INPUTS, where=where)

    @property
    def behind(self) -> tuple[AffectedRange, ...]:
        """The ranges with newer records in Kafka than in the history."""
        if self._refusal is not None:
            return ()
        return tuple(
            own
            for own in self._ranges
            if own.state_partition is not None
            and own.record_offset is not None
            and self.positions[own.state_partition] <= own.record_offset
        )

    def saved_states(self) -> tuple[dict[int, int], pa.Table]:
        """Where newer records are to be read from, by state partition, and what is held there of the groups: rows of
        ``HELD_COLUMNS``."""
        where = one_of("group_id", {own.key.group_id for own in self._ranges})
        return history_tables.saved_positions(self._tables), history_tables.saved_rows(self._tables, where)

    def add(
        self, held: pa.Table, newer: Iterable[RawRecord], pruned: Mapping[int, tuple[int, int]], ends: Mapping[int, int]
    ) -> None:
        """Take in what `newer` records, up to `ends` (by state partition), make of the states `held`. `pruned`: first
        offset, and offset after the last one, of the records before them that are not known."""
        gaps = {(number, end - 1): first for number, (first, end) in pruned.items()}
        # Each gap stands before a record that changes nothing: of a type that is not known.
        markers = [{"state_partition": n, "offset": at, "decode_status": "unknown_type"} for n, at in gaps]
        raw = [(each.state_partition, each.offset, each.timestamp_ms, each.key, each.value) for each in newer]
        columns = zip(*raw, strict=True) if raw else ((),) * len(RAW_RECORDS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
        decoded = decode_records(pa.Table.from_arrays(arrays, schema=RAW_RECORDS))
        records = pa.concat_tables([decoded, pa.Table.from_pylist(markers, schema=decoded.schema)]).sort_by(_LOG_ORDER)
        addresses = zip(records["state_partition"].to_pylist(), records["offset"].to_pylist(), strict=True)
        missing = np.array([gaps.get(address, -1) for address in addresses], np.int64)
        changes, _ = record_changes(held, records, missing, self.positions)
        made = changes.cast(CHANGE_COLUMNS).select(SETTLED_INPUTS)
        self._rows = pa.concat_tables([self._rows, made.filter(outcome_filter())])
        self.positions = {**self.positions, **ends}

    def outcomes(self) -> dict[SharePartition, OutcomeCounts]:
        """What is known of each range."""
        if self._refusal is not None:
            return {own.key: OutcomeCounts(unknown=own.records, reason=self._refusal) for own in self._ranges}
        rows = {
            SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=partition): own
            for (group_id, topic_id, partition), own in by_share_partition(self._rows)
        }
        return {own.key: self._outcome(own, rows.get(own.key)) for own in self._ranges}

    def _outcome(self, own: AffectedRange, rows: pa.Table | None) -> OutcomeCounts:
        if rows is None:
            reason = (
                self._not_kept or "the history has no record of it (acktrail run export, then acktrail run history)"
            )
            return OutcomeCounts(unknown=own.records, reason=reason)
        number = own.state_partition
        doubts = [] if number is None else self._doubts[number]
        found = outcome_counts(rows, own.first_offset, own.last_offset, doubts, own.hidden)
        if number is None or own.record_offset is None:
            reason = "whether the history is up to date is not known"
        elif self.positions[number] <= own.record_offset:
            reason = (
                f"the history ends before record {self.positions[number]} of state partition {number}, and Kafka has "
                f"record {own.record_offset} of it (acktrail run export, then acktrail run history)"
            )
        else:
            lacking = self._not_kept or "state records of it are missing in the export"
            return replace(found, reason=lacking if found.unknown else None)
        return replace(found, unknown=own.records, reason=reason)  # it may have changed since


def outcomes_of(
    tables: Tables, cluster_id: str, group_id: GroupId, topic_id: TopicId, offsets: Mapping[int, Sequence[int]]
) -> tuple[int, int]:
    """Return how many of these records, by partition, a group last acknowledged and archived, as far as the history
    goes. Raises ForeignCluster."""
    ranges = [
        AffectedRange(
            key=SharePartition(group_id=group_id, topic_id=topic_id, partition=partition),
            first_offset=min(own),
            last_offset=max(own),
            state_partition=None,
            record_offset=None,
            hidden=tuple((a + 1, b - 1) for a, b in pairwise(sorted(own)) if b > a + 1),
        )
        for partition, own in offsets.items()
        if own
    ]
    found = RecordOutcomes(tables, cluster_id, None, ranges).outcomes().values() if ranges else ()
    return sum(one.acknowledged for one in found), sum(one.archived for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """Numbers of records in a range that the group last acknowledged or archived, by its history.

    `unknown`: those with a part of the history missing, before the first record of the share partition or since their
    last known status; they may be counted among the others and have changed since. `since_ms`: the broker's time of the
    first state record about the range; None: there is none. `reason`: why the history is not complete; None: it is.
    """

    acknowledged: int = 0
    archived: int = 0
    unknown: int = 0
    since_ms: int | None = None
    reason: str | None = None


def outcome_filter() -> pc.Expression:
    """The rows of ``DELIVERY_HISTORY`` that `outcome_counts` needs: changes to acknowledged or archived, to and from an
    unknown status, and the first of a share partition."""
    is_settled = one_of("delivery_state", [_ACKNOWLEDGED, _ARCHIVED])
    return is_settled | (pc.field("standing") == _UNKNOWN) | one_of("before_standing", [_UNKNOWN, _ABSENT])


def by_share_partition(rows: pa.Table) -> Iterator[tuple[tuple[str, str, int], pa.Table]]:
    """Group id, topic id and partition of each share partition in `rows`, and its rows in log order."""
    order = [(name, "ascending") for name in (*KEY_COLUMNS, "state_partition", "record_offset")]
    ordered = rows.sort_by(order).combine_chunks()
    begins = starts_of(key_codes(ordered[name] for name in KEY_COLUMNS)).tolist()
    for begin, end in pairwise([*begins, ordered.num_rows]):
        own = ordered.slice(begin, end - begin)
        group_id, topic_id, partition = (own[name][0].as_py() for name in KEY_COLUMNS)
        yield (group_id, topic_id, partition), own


def outcome_counts(
    rows: pa.Table, first: int, last: int, doubts: Sequence[int] = (), hidden: Sequence[Span] = ()
) -> OutcomeCounts:
    """Counts what the group last did with the records from `first` to `last` (inclusive), without the offsets in
    `hidden`.

    Args:
        rows: of one share partition, in log order, with `SETTLED_INPUTS`; at least those that `outcome_filter`
            chooses and that share an offset with the range. If they are on several state partitions, their order is
            not known, and so is no record.
        doubts: offsets of state records that may be about the share partition and cannot be read.

    Cost: some numpy operations, and two assignments to slices for each row.
    """
    if pc.count_distinct(rows["state_partition"]).as_py() != 1:
        return OutcomeCounts(unknown=RecordCounter(hidden).count(first, last))
    begins = np.maximum(rows["first_offset"].to_numpy(), first)
    ends = np.minimum(pc.fill_null(rows["last_offset"], last).to_numpy(), last) + 1
    meets = begins < ends
    begins, ends, rows = begins[meets], ends[meets], rows.filter(pa.array(meets))
    spans = np.clip(np.array(hidden, np.int64).reshape(-1, 2) + np.array([0, 1]), first, last + 1)
    edges = np.unique(np.concatenate([begins, ends, spans.ravel(), [first, last + 1]]))
    cells = _Cells(len(edges) - 1)
    cells.apply(rows, np.searchsorted(edges, begins).tolist(), np.searchsorted(edges, ends).tolist())
    lengths, times = np.diff(edges), rows["record_timestamp_ms"].drop_null()
    is_hidden = np.searchsorted(spans[:, 0], edges[:-1], "right") > np.searchsorted(spans[:, 1], edges[:-1], "right")
    lengths[is_hidden] = 0
    is_known = cells.is_seen & (cells.settled_at >= np.maximum(cells.lost_at, max(doubts, default=_NEVER)))
    return OutcomeCounts(
        acknowledged=int(lengths[cells.kinds == _ACKNOWLEDGED].sum()),
        archived=int(lengths[cells.kinds == _ARCHIVED].sum()),
        unknown=int(lengths[~is_known].sum()),
        since_ms=pc.min(times).as_py() if len(times) else None,
    )


class _Cells:
    """Pieces of a range that no row cuts: for each the last known kind, the state record that set it, and the state
    record since which it is not known; arrays of shape (cells,)."""

    def __init__(self, count: int) -> None:
        self.kinds = np.zeros(count, np.int8)
        self.settled_at = np.full(count, _NEVER)
        self.lost_at = np.full(count, _NEVER)
        self.is_seen = np.zeros(count, np.bool_)

    def apply(self, rows: pa.Table, begins: Sequence[int], ends: Sequence[int]) -> None:
        """Apply `rows`, in log order; row i covers the cells from ``begins[i]`` up to ``ends[i]``."""
        columns = (
            rows[name].to_pylist() for name in ("standing", "before_standing", "delivery_state", "record_offset")
        )
        for begin, end, standing, before, state, place in zip(begins, ends, *columns, strict=True):
            self.is_seen[begin:end] = True
            if standing == _UNKNOWN:
                self.lost_at[begin:end] = place
            elif before == _UNKNOWN:
                self.lost_at[begin:end] = place if standing == _BELOW_START else _NEVER
            if state in _SETTLED:
                self.settled_at[begin:end] = place
                self.kinds[begin:end] = state
