"""Reads the rows of one run from the tables."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.model.offset_history.archived_ranges import ArchivedRange
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.history_reader import HistoryReader
from acktrail.tables.past.history_tables import CHANGES
from acktrail_dashboard.rows.archived_rows import groups_with_more
from acktrail_dashboard.rows.export_rows import EXPORT_COLUMNS
from acktrail_dashboard.rows.run_tables import RunTables, chosen_run

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
    chosen = chosen_run(runs, run_id, root=tables.root)
    own = {name: tables.read(name, where=pc.field("run_id") == chosen) for name in _OF_THE_RUN}
    return (
        RunTables(
            **own,
            findings=tables.read("findings"),
            topics=tables.read("topics"),
            export_ranges=tables.read("export_ranges", columns=EXPORT_COLUMNS),
            archived=_history_of_archived(tables, own["share_partition_states"]),
        ),
        chosen,
    )


def _history_of_archived(tables: Tables, states: pa.Table) -> tuple[ArchivedRange, ...]:
    """What the history has of groups that archived more than their state shows; none where it does not know them."""
    if not tables.exists(CHANGES):
        return ()
    reader, found = HistoryReader(tables), []
    for group_id in groups_with_more(states):
        with suppress(UnknownName):
            found += reader.archived(group_id)
    return tuple(found)
