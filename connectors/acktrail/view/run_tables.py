"""The rows of one reconcile run, as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.record_history import ArchivedRange
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import newest_reconciliation

OF_THE_RUN: Final = ("share_partition_states", "reconciliations", "quality_results", "group_observations")
_FILTERED: Final = (*OF_THE_RUN, "findings", "offset_observations", "queue_statuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """Tables in the columns of `acktrail.format.columns.schemas.table_schemas`.

    `offset_observations` has rows where the run has no share partition: when it looked, and at which cluster.
    `queue_statuses` has rows of the newest run alone, and may lack columns. `archived` is what ``delivery_history`` has
    of groups that archived more than their states show. `branches`: what branches have of the run, by the names of
    their sections of a report.
    """

    share_partition_states: pa.Table
    reconciliations: pa.Table
    findings: pa.Table
    quality_results: pa.Table
    export_ranges: pa.Table
    group_observations: pa.Table
    topics: pa.Table
    offset_observations: pa.Table = field(default_factory=TABLES["offset_observations"].empty_table)
    queue_statuses: pa.Table = field(default_factory=TABLES["queue_statuses"].empty_table)
    archived: tuple[ArchivedRange, ...] = ()
    branches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> RunTables:
        return cls(**{own.name: TABLES[own.name].empty_table() for own in fields(cls) if own.name in TABLES})


def shown_run(tables: Tables, run_id: str | None) -> str:
    """`run_id`, or the run observed last. Raises as `chosen_run`."""
    runs = tables.read("reconciliations", columns=("run_id", "observed_at"))
    return chosen_run(runs, newest_reconciliation(tables)[0], run_id, root=tables.root)


def chosen_run(reconciliations: pa.Table, newest: str | None, wanted: str | None, *, root: str) -> str:
    """The run to show: `wanted`, else the one observed last. `newest` is the newest reconciliation, which may have no
    share partition. `root` is where the tables are, for the message.

    Raises:
        InputError: when nothing was reconciled yet.
        UnknownName: when `wanted` is no run in the table (with the runs observed last).
    """
    runs = reconciliations.group_by("run_id").aggregate([("observed_at", "max")])
    ordered = runs.sort_by([("observed_at_max", "descending"), ("run_id", "descending")])
    known = [str(run_id) for run_id in ordered["run_id"].to_pylist() if run_id is not None]
    if newest is not None and newest not in known:
        known.insert(0, newest)
    if wanted is not None and wanted not in known:
        raise UnknownName("run", wanted, nearest=known[:3])
    if not known:
        raise InputError(f"no reconcile run in {root}", hint="run `acktrail run reconcile` first")
    return wanted if wanted is not None else known[0]


def rows_of_run(tables: RunTables, run_id: str) -> RunTables:
    """What belongs to `run_id`: its own rows, and of topics and exports all that was known at its end."""
    own = {name: getattr(tables, name).filter(pc.field("run_id") == run_id) for name in _FILTERED}
    ended = run_end(replace(tables, **own))
    return replace(
        tables,
        **own,
        export_ranges=_until(tables.export_ranges, "exported_at", ended, run_id),
        topics=_until(tables.topics, "first_seen_at", ended, run_id),
    )


def run_end(own: RunTables) -> datetime | None:
    """The last time at which the run of these tables observed the cluster."""
    looks = (own.reconciliations, own.group_observations, own.offset_observations)
    ends = [pc.max(table["observed_at"]).as_py() for table in looks]
    return max((end for end in ends if end is not None), default=None)


def _until(table: pa.Table, column: str, ended: datetime | None, run_id: str) -> pa.Table:
    """Rows not after `ended`, those of the run itself, and those without a time."""
    if ended is None or table.num_rows == 0:
        return table
    instants = table[column]
    earlier = pc.less_equal(instants, pa.scalar(ended, type=instants.type))
    own = pc.equal(table["run_id"], run_id)
    return table.filter(pc.or_(pc.fill_null(earlier, fill_value=True), pc.fill_null(own, fill_value=False)))
