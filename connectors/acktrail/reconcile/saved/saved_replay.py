"""What replay remembers of the records it has applied: enough to go on without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.replaying.state_columns import REPLAYED_STATES
from acktrail.columnar.schemas.incremental_tables import REPLAY_MEMORY
from acktrail.reconcile.newest_offsets import ADDRESS, NEWEST, Heads

__all__ = ["MEMORY_COLUMNS", "Memory", "memory_rows", "states_in", "timestamps_in"]

_OF_STATE_PARTITIONS: Final = (
    "next_offset",
    "share_partitions",
    "run_id",
    "records_table",
    "state_topic_id",
    "dialect",
    "law",
    "records_version",
    "records_files",
    "unfinished",
    "exported",
)

MEMORY_COLUMNS: Final = pa.schema([f for f in REPLAY_MEMORY if f.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])
"""The columns of ``REPLAY_MEMORY`` that the records of a share partition decide."""

_RENAMED: Final = {name: name.removesuffix("_at") + "_offset" for name in NEWEST if name.endswith("_at")}
"""A head's columns by their names in the table, where names that end in ``_at`` are times."""

_RANGE: Final = ("first_offset", "last_offset")

_OF_STATE: Final = tuple(f.name for f in MEMORY_COLUMNS if f.name in REPLAYED_STATES.names and f.name not in ADDRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Rows of ``MEMORY_COLUMNS`` after the records before `positions` (by state partition)."""

    rows: pa.Table = field(default_factory=MEMORY_COLUMNS.empty_table)
    positions: Mapping[int, int] = field(default_factory=dict)

    def into(self, heads: Heads) -> None:
        """Let `heads` go on from here."""
        names = [*ADDRESS, *(_RENAMED.get(name, name) for name in NEWEST)]
        archived = self.rows["archived_ranges"].combine_chunks()
        heads.go_on(self.rows.select(names).rename_columns([*ADDRESS, *NEWEST]), archived)


def states_in(rows: pa.Table) -> pa.Table:
    """The states (``REPLAYED_STATES``) that rows of ``MEMORY_COLUMNS`` have."""
    return rows.filter(pc.is_valid(rows["snapshot_epoch"])).select(REPLAYED_STATES.names)


def timestamps_in(rows: pa.Table) -> dict[int, int | None]:
    """Timestamps of the last records by their offset, of rows of one state partition."""
    return dict(
        zip(*(rows[name].to_pylist() for name in ("last_record_offset", "last_record_timestamp_ms")), strict=True)
    )


def memory_rows(heads: Heads, states: pa.Table, timestamps: Mapping[tuple[int, int], int | None]) -> pa.Table:
    """Rows of ``MEMORY_COLUMNS``: all of `heads`, their states (``REPLAYED_STATES``) where they have one, and the times
    of their last records by state partition and offset."""
    rows = heads.all()
    numbered = states.select(list(ADDRESS)).append_column("row", pa.array(range(states.num_rows), pa.int64()))
    keyed = rows.select(list(ADDRESS)).append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    found = keyed.join(numbered, keys=list(ADDRESS), join_type="left outer").sort_by("place")["row"].combine_chunks()
    lasts = zip(rows["state_partition"].to_pylist(), rows["last_record_offset"].to_pylist(), strict=True)
    columns: dict[str, Any] = {name: rows[name] for name in ADDRESS}
    columns |= {_RENAMED.get(name, name): rows[name] for name in NEWEST}
    columns |= {name: states[name].combine_chunks().take(found) for name in _OF_STATE if name not in columns}
    columns["last_record_timestamp_ms"] = pa.array([timestamps.get(place) for place in lasts], pa.int64())
    columns["archived_ranges"] = heads.archived_ranges(rows)
    return pa.table([columns[name] for name in MEMORY_COLUMNS.names], schema=MEMORY_COLUMNS)
