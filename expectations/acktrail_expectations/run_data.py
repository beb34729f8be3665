"""The rows that one validation of a run reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.cluster_check import reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.exported.stored_log import newest_shifts
from acktrail_expectations.frames.table_frames import (
    OBSERVED_COLUMNS,
    RANGE_COLUMNS,
    RECONCILIATION_COLUMNS,
    STATE_COLUMNS,
    ExportedSoFar,
    state_topic_observed,
)
from acktrail_expectations.known_runs import own_rows
from acktrail_expectations.observed_cluster import ObservedCluster, observed_cluster
from acktrail_expectations.unvalidated_records import (
    LOOK_BACK,
    UnvalidatedRecords,
    ValidationPositions,
    advanced,
    at_or_above,
    read_positions,
)

_GROUP_COLUMNS: Final = ("cluster_id", "group_id", "configs")
_OFFSET_COLUMNS: Final = ("cluster_id", *OBSERVED_COLUMNS)
_NAMED: Final = ("share_partition_states", "reconciliations", "export_ranges")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run's rows, and the records and ranges that no run before it validated.

    `observed`: its rows of ``OFFSET_OBSERVATIONS``. `since`: where those begin. `why_bytes_not_compared`: why the
    records are not compared with their raw bytes; None: they are.
    """

    store: Tables
    run_id: str
    cluster_id: str | None
    cluster: ObservedCluster
    observed: pa.Table
    since: ValidationPositions
    records: UnvalidatedRecords
    ranges: pa.Table
    why_bytes_not_compared: str | None

    @classmethod
    def read(cls, store: Tables, run_id: str, *, every_record: bool) -> RunData:
        """What is to be validated for `run_id`; `every_record`: also what was validated before."""
        groups = own_rows(store, run_id, "group_observations", _GROUP_COLUMNS)
        offsets = own_rows(store, run_id, "offset_observations", _OFFSET_COLUMNS)
        cluster = observed_cluster(groups, offsets)
        topics = state_topic_observed(offsets)
        positions = read_positions(store.snapshot("quality_results"), _state_partitions(store, cluster), topics)
        since = replace(positions, records={}, ranges={}) if every_record else positions
        # of those not validated yet, also the one that ends just below them on each state partition
        ends_from = {partition: offset - 1 for partition, offset in since.ranges.items()}
        unvalidated = at_or_above(ends_from, "last_offset", "gap_last")
        ranges = store.read("export_ranges", columns=RANGE_COLUMNS, where=(pc.field("run_id") == run_id) | unvalidated)
        why_not = _why_bytes_not_compared(store.snapshot(RECORDS), every_record=every_record)
        begin = _first_offsets_to_read(since.records, ranges)
        columns = ["state_partition", "gap_first", "gap_last"]
        gaps = store.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid())
        return cls(
            store=store,
            run_id=run_id,
            cluster_id=_cluster_id(store, run_id, groups, offsets),
            cluster=cluster,
            observed=offsets,
            since=since,
            records=UnvalidatedRecords.find(
                store, cluster, since.records, begin, gaps=gaps, compares_bytes=why_not is None
            ),
            ranges=ranges,
            why_bytes_not_compared=why_not,
        )

    @property
    def states(self) -> pa.Table:
        return own_rows(self.store, self.run_id, "share_partition_states", STATE_COLUMNS)

    @property
    def reconciliations(self) -> pa.Table:
        return own_rows(self.store, self.run_id, "reconciliations", RECONCILIATION_COLUMNS)

    @property
    def exported(self) -> ExportedSoFar:
        """How far each state partition was exported, by Kafka's offsets, and how many there were at first."""
        shifts = newest_shifts(self.store)
        ends = advanced(_ends(self.ranges), self.since.ranges)
        return ExportedSoFar(
            ends={partition: end - shifts.get(partition, 0) for partition, end in ends.items()},
            partition_counts=self.since.partition_counts,
        )

    @property
    def validated(self) -> ValidationPositions:
        """Where the next run begins."""
        return ValidationPositions(
            records=advanced(self.records.stored.ends(), self.since.records),
            ranges=advanced(_ends(self.ranges), self.since.ranges),
            sequence=self.since.sequence,
            partition_counts={**state_topic_observed(self.observed), **self.since.partition_counts},
        )


def _ends(ranges: pa.Table) -> dict[int, int]:
    """One past the last offset that `ranges` cover, by state partition."""
    last = pa.table(
        {"state_partition": ranges["state_partition"], "last": pc.coalesce(ranges["last_offset"], ranges["gap_last"])}
    )
    highest = last.group_by("state_partition").aggregate([("last", "max")]).to_pylist()
    return {row["state_partition"]: row["last_max"] + 1 for row in highest if row["last_max"] is not None}


def _why_bytes_not_compared(snapshot: TableSnapshot | None, *, every_record: bool) -> str | None:
    """Decoding them again costs a quarter of a validation, so that only a validation of every record does it."""
    if snapshot is not None and not reads_as_own(snapshot):
        return "the records are in another dialect: they are not compared with their raw bytes"
    return None if every_record else "records are compared with their raw bytes by acktrail run validate --all"


def _first_offsets_to_read(since: Mapping[int, int], ranges: pa.Table) -> dict[int, int]:
    """First offset to read by state partition: `LOOK_BACK` below `since`, and the ranges to validate."""
    firsts = ranges.group_by("state_partition").aggregate([("first_offset", "min")]).to_pylist()
    least = {row["state_partition"]: row["first_offset_min"] for row in firsts if row["first_offset_min"] is not None}
    return {p: max(0, min(offset - LOOK_BACK, least.get(p, offset))) for p, offset in since.items()}


def _state_partitions(store: Tables, cluster: ObservedCluster) -> list[int]:
    """The state partitions: as observed, else all that were ever exported."""
    if cluster.state_partition_count is not None:
        return list(range(cluster.state_partition_count))
    exported = store.read("export_ranges", columns=["state_partition"])["state_partition"]
    return list(exported.unique().to_pylist())


def _cluster_id(store: Tables, run_id: str, *observations: pa.Table) -> str | None:
    """The cluster that the run's rows name."""
    named = (own_rows(store, run_id, name, ("cluster_id",)) for name in _NAMED)
    for rows in (*observations, *named):
        found = pc.unique(rows["cluster_id"]).drop_null().to_pylist()
        if found:
            return str(found[0])
    return None
