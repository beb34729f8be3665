"""What groups last did with ranges of records, from the exported history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.model_values import change_table, known_states_of
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.model.status_changes import KnownState, StatusChange
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import DROPPED_BEFORE
from acktrail.tables.past.history_tables import (
    CHANGES,
    change_positions,
    saved_positions,
    saved_rows,
    unattributed_records,
)
from acktrail.tables.past.settled_offsets import (
    SETTLED_INPUTS,
    SettledCounts,
    by_share_partition,
    settled_counts,
    settled_filter,
)
from acktrail.times import instant_text

_RECORDS: Final = "state_records"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOutcome:
    """The history of a range. `reason`: why it is not complete; None: it is."""

    settled: SettledCounts
    reason: str | None


class SettledHistory:
    """The history of `ranges` in `tables`, one a share partition; ForeignCluster where it is another cluster's. Reads
    ``delivery_history`` once. `state_topic_id`: the state topic that Kafka has; None: not known."""

    def __init__(
        self, tables: Tables, cluster_id: str, state_topic_id: str | None, ranges: Collection[AffectedRange]
    ) -> None:
        ensure_same_cluster(tables, cluster_id, (CHANGES, _RECORDS))
        self._tables, self._ranges = tables, tuple(ranges)
        records, snapshot = tables.snapshot(_RECORDS), tables.snapshot(CHANGES)
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
        self.positions = change_positions(tables, numbers)
        """The offset of the first state record whose changes are not in the history, by state partition."""
        self._doubts: defaultdict[int, list[int]] = defaultdict(list)
        """Offsets of ``unattributed_records``, by state partition."""
        for row in unattributed_records(tables, numbers):
            self._doubts[row["state_partition"]].append(row["offset"])
        where = (
            pc.field("group_id").isin(sorted({own.key.group_id for own in ranges}))
            & pc.field("topic_id").isin(sorted({own.key.topic_id for own in ranges}))
            & (pc.field("first_offset") <= max(own.last_offset for own in ranges))
            & (pc.field("last_offset") >= min(own.first_offset for own in ranges))
            & settled_filter()
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

    def saved_states(self, keys: Collection[SharePartition]) -> tuple[dict[int, int], dict[SharePartition, KnownState]]:
        """Where newer records are to be read from, by state partition, and what is held of `keys` there."""
        positions = saved_positions(self._tables)
        where = pc.field("group_id").isin(sorted({key.group_id for key in keys}))
        found = dict(known_states_of(saved_rows(self._tables, where)))
        return positions, {key: held for key, held in found.items() if key in keys}

    def add(self, changes: Iterable[StatusChange], ends: Mapping[int, int]) -> None:
        """Take in what newer records changed, up to `ends` (by state partition)."""
        before = self.positions
        newer = change_table(change for change in changes if change.at.offset >= before[change.at.state_partition])
        self._rows = pa.concat_tables([self._rows, newer.select(SETTLED_INPUTS).filter(settled_filter())])
        self.positions = {**before, **ends}

    def outcomes(self) -> dict[SharePartition, RangeOutcome]:
        """What is known of each range."""
        if self._refusal is not None:
            return {own.key: RangeOutcome(settled=_unknown(own), reason=self._refusal) for own in self._ranges}
        rows = {
            SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=partition): own
            for (group_id, topic_id, partition), own in by_share_partition(self._rows)
        }
        return {own.key: self._outcome(own, rows.get(own.key)) for own in self._ranges}

    def _outcome(self, own: AffectedRange, rows: pa.Table | None) -> RangeOutcome:
        if rows is None:
            reason = (
                self._not_kept or "the history has no record of it (acktrail run export, then acktrail run history)"
            )
            return RangeOutcome(settled=_unknown(own), reason=reason)
        number = own.state_partition
        doubts = [] if number is None else self._doubts[number]
        found = settled_counts(rows, own.first_offset, own.last_offset, doubts, own.hidden)
        if number is None or own.record_offset is None:
            reason = "whether the history is up to date is not known"
        elif self.positions[number] <= own.record_offset:
            reason = (
                f"the history ends before record {self.positions[number]} of state partition {number}, and Kafka has "
                f"record {own.record_offset} of it (acktrail run export, then acktrail run history)"
            )
        else:
            lacking = self._not_kept or "state records of it are missing in the export"
            return RangeOutcome(settled=found, reason=lacking if found.unknown else None)
        return RangeOutcome(settled=replace(found, unknown=own.records), reason=reason)  # it may have changed since


def _unknown(own: AffectedRange) -> SettledCounts:
    return SettledCounts(acknowledged=0, archived=0, unknown=own.records, since_ms=None)
