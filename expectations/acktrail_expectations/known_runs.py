"""Which runs the tables know, what rows they have of a run, and whether it was reconciled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.commit_order import newest_rows
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit

_OF_RUNS: Final = (
    *("reconciliations", "share_partition_states", "offset_observations", "export_ranges", "group_observations"),
)
"""Tables that name runs; a run may have rows in any of them."""


def run_rows(store: Tables, run_id: str, columns: tuple[str, ...] | None = None) -> dict[str, pa.Table]:
    """The rows that each table has of a run; of some columns."""
    return {name: store.read(name, columns=columns, where=pc.field("run_id") == run_id) for name in _OF_RUNS}


def cluster_of_run(rows: Mapping[str, pa.Table]) -> str | None:
    """The cluster that the rows of a run name."""
    named = (own["cluster_id"].drop_null() for own in rows.values())
    return next((str(found[0]) for found in named if len(found)), None)


def choose_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run.
    """
    if run_id is not None and any(count_rows(store, run_id).values()):
        return run_id
    known: set[str] = set()
    for name in _OF_RUNS:
        newest = newest_rows(store, name, ["run_id"]) if run_id is None else None
        if newest is not None and newest.num_rows:
            return max(newest["run_id"].to_pylist())
        known |= {*store.read(name, columns=["run_id"])["run_id"].unique().to_pylist()}
    if run_id is not None:
        raise UnknownName("run", run_id, known=sorted(filter(None, known)))
    raise ConfigurationError(f"no run in the tables at {store.root}", hint="run `acktrail run export` first")


def count_rows(store: Tables, run_id: str) -> dict[str, int]:
    """The number of rows that each table has of a run."""
    return {name: own.num_rows for name, own in run_rows(store, run_id, ("run_id",)).items()}


def require_reconciled(store: Tables, run_id: str, rows: Mapping[str, pa.Table]) -> None:
    """See that a run, which the tables have `rows` of, was reconciled, to its end. A row that occurs twice is for the
    rules to judge.

    Raises:
        InputError: it was not, or only in part.
    """
    states, verdicts = (
        rows[name].group_by(list(KEY_COLUMNS)).aggregate([]).num_rows
        for name in ("share_partition_states", "reconciliations")
    )
    hint = f"run `acktrail run reconcile --run-id {run_id}` first"
    if verdicts < states:
        raise InputError(f"run {run_id!r}: {verdicts} of {states} share partitions are reconciled", hint=hint)
    if verdicts:
        return
    found_nothing = reconciliation_commit(cluster_of_run(rows), run_id)
    if store.transaction_version("reconciliations", found_nothing) is not None:
        return
    if not rows["group_observations"].num_rows and not rows["offset_observations"].num_rows:
        hint = "it observed nothing: run `acktrail run export --observe`, then `acktrail run reconcile`"
    raise InputError(f"run {run_id!r} was not reconciled: there is no verdict to validate", hint=hint)
