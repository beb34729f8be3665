"""Reads the rows of one run from the tables."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.rows.archived_rows import ARCHIVED_COLUMNS, groups_with_more, with_archived
from acktrail_dashboard.rows.export_rows import EXPORT_COLUMNS
from acktrail_dashboard.rows.run_tables import RunTables, latest_run

__all__ = ["read_run"]

_OF_THE_RUN: Final = ("share_partition_states", "reconciliations", "quality_results", "group_observations")


def read_run(config: TablesConfig, run_id: str | None) -> tuple[RunTables, str]:
    """The tables of `run_id`, or of the run observed last, and that run's id.

    Raises:
        InputError: nothing was reconciled yet.
        UnknownName: `run_id` is no reconcile run.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    tables = Tables(config)
    runs = tables.read("reconciliations", columns=("run_id", "observed_at"))
    chosen = latest_run(runs, run_id, root=tables.root)
    own = {name: tables.read(name, where=pc.field("run_id") == chosen) for name in _OF_THE_RUN}
    return (
        RunTables(
            **own,
            findings=tables.read("findings"),
            topics=tables.read("topics"),
            export_ranges=tables.read("export_ranges", columns=EXPORT_COLUMNS),
            archived_records=_archived_records(tables, own["share_partition_states"]),
        ),
        chosen,
    )


def _archived_records(tables: Tables, states: pa.Table) -> pa.Table:
    """Records with archived offsets that the current state no longer shows; read piece by piece, only where needed."""
    schema = pa.schema([TABLES["state_records"].field(name) for name in ARCHIVED_COLUMNS])
    groups, snapshot = groups_with_more(states), tables.snapshot("state_records")
    if not groups or snapshot is None:
        return schema.empty_table()
    pieces = snapshot.batches(columns=ARCHIVED_COLUMNS, where=pc.field("group_id").isin(list(groups)))
    return pa.concat_tables(
        [schema.empty_table(), *(with_archived(pa.Table.from_batches([piece])) for piece in pieces)]
    )
