"""What one validation reads of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.store import Tables
from acktrail_expectations.facts import ClusterFacts, cluster_facts
from acktrail_expectations.frames.export_ranges import RANGE_COLUMNS
from acktrail_expectations.frames.reconciliations import RECONCILIATION_COLUMNS
from acktrail_expectations.frames.share_partition_states import STATE_COLUMNS
from acktrail_expectations.frames.state_records import RECORD_COLUMNS
from acktrail_expectations.increment import LOOK_BACK, Positions, Window, from_offsets, reached, read_positions, windows

__all__ = ["RunData"]

_GROUP_COLUMNS: Final = ("cluster_id", "group_id", "configs")
_OFFSET_COLUMNS: Final = (
    "cluster_id",
    "group_id",
    "topic",
    "topic_id",
    "partition",
    "log_start_offset",
    "log_end_offset",
)
_NAMED: Final = ("share_partition_states", "reconciliations", "export_ranges")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run's rows, and the records and ranges that no run before it validated.

    `since`: where those begin. `addresses`: state partition and offset of the stored records from somewhat below.
    """

    store: Tables
    run_id: str
    cluster_id: str | None
    facts: ClusterFacts
    since: Positions
    addresses: pa.Table
    ranges: pa.Table

    @classmethod
    def read(cls, store: Tables, run_id: str, *, every_record: bool) -> RunData:
        """What is to be validated for `run_id`; `every_record`: also what was validated before."""
        own = pc.field("run_id") == run_id
        groups = store.read("group_observations", columns=_GROUP_COLUMNS, where=own)
        offsets = store.read("offset_observations", columns=_OFFSET_COLUMNS, where=own)
        facts = cluster_facts(groups, offsets)
        positions = read_positions(store.snapshot("quality_results"), _state_partitions(store, facts))
        since = Positions(sequence=positions.sequence) if every_record else positions
        return cls(
            store=store,
            run_id=run_id,
            cluster_id=_cluster_id(store, run_id, groups, offsets),
            facts=facts,
            since=since,
            addresses=store.read(
                "state_records", columns=["state_partition", "offset"], where=_somewhat_below(since.records)
            ),
            ranges=store.read("export_ranges", columns=RANGE_COLUMNS, where=own | _with_predecessors(since.ranges)),
        )

    @property
    def gaps(self) -> pa.Table:
        """What is known to be lost for ever: few rows, whatever the table's size."""
        columns = ["state_partition", "gap_first", "gap_last"]
        return self.store.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid())

    @property
    def records(self) -> Iterator[tuple[Window, pa.Table]]:
        """The records to validate with some before them, window by window."""
        for window in windows(self.addresses, self.since.records):
            yield window, self.store.read("state_records", columns=RECORD_COLUMNS, where=window.rows)

    @property
    def states(self) -> pa.Table:
        return self.store.read("share_partition_states", columns=STATE_COLUMNS, where=pc.field("run_id") == self.run_id)

    @property
    def reconciliations(self) -> pa.Table:
        return self.store.read(
            "reconciliations", columns=RECONCILIATION_COLUMNS, where=pc.field("run_id") == self.run_id
        )

    @property
    def validated(self) -> Positions:
        """Where the next run begins."""
        ends = pa.table(
            {
                "state_partition": self.ranges["state_partition"],
                "last": pc.coalesce(self.ranges["last_offset"], self.ranges["gap_last"]),
            }
        )
        return Positions(
            records=reached(self.addresses, "offset", self.since.records),
            ranges=reached(ends, "last", self.since.ranges),
            sequence=self.since.sequence,
        )


def _somewhat_below(since: Mapping[int, int]) -> pc.Expression:
    return from_offsets({partition: offset - LOOK_BACK for partition, offset in since.items()}, "offset")


def _with_predecessors(since: Mapping[int, int]) -> pc.Expression:
    """The ranges not validated yet and, on each state partition, the one that ends just below them."""
    return from_offsets({partition: offset - 1 for partition, offset in since.items()}, "last_offset", "gap_last")


def _state_partitions(store: Tables, facts: ClusterFacts) -> list[int]:
    """The state partitions there are: as observed, else all that were ever exported."""
    if facts.state_partition_count is not None:
        return list(range(facts.state_partition_count))
    found: list[int] = pc.unique(
        store.read("export_ranges", columns=["state_partition"])["state_partition"]
    ).to_pylist()
    return found


def _cluster_id(store: Tables, run_id: str, *observations: pa.Table) -> str | None:
    """The cluster that the run's rows name."""
    own = pc.field("run_id") == run_id
    named = (store.read(name, columns=["cluster_id"], where=own) for name in _NAMED)
    for rows in (*observations, *named):
        found = pc.unique(rows["cluster_id"]).drop_null().to_pylist()
        if found:
            return str(found[0])
    return None
