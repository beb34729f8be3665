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

_OF_RUNS: Final = ("reconciliations", "share_partition_states", "offset_observations", "export_ranges")
"""Tables that name runs; a run may have rows in any of them."""
_COUNTED: Final = ("group_observations", *_OF_RUNS)


def own_rows(store: Tables, run_id: str, name: str, columns: tuple[str, ...] | None = None) -> pa.Table:
    """The rows that a table has of a run; of some columns."""
    return store.read(name, columns=columns, where=pc.field("run_id") == run_id)


def choose_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run.
    """
    if run_id is not None and any(own_rows(store, run_id, name, ("run_id",)).num_rows for name in _OF_RUNS):
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
    return {name: own_rows(store, run_id, name, ("run_id",)).num_rows for name in _COUNTED}


def _share_partitions(store: Tables, run_id: str, name: str) -> int:
    """How many share partitions a table has rows of, in a run; a row that is there twice is for the rules to judge."""
    return own_rows(store, run_id, name, KEY_COLUMNS).group_by(list(KEY_COLUMNS)).aggregate([]).num_rows


def require_reconciled(store: Tables, run_id: str, rows: Mapping[str, int]) -> None:
    """See that a run was reconciled, to its end.

    Raises:
        InputError: it was not, or only in part.
    """
    states, verdicts = (
        _share_partitions(store, run_id, name) for name in ("share_partition_states", "reconciliations")
    )
    hint = f"run `acktrail run reconcile --run-id {run_id}` first"
    if verdicts < states:
        raise InputError(f"run {run_id!r}: {verdicts} of {states} share partitions are reconciled", hint=hint)
    if verdicts:
        return
    named = own_rows(store, run_id, "offset_observations", ("cluster_id",))["cluster_id"]
    found_nothing = reconciliation_commit(next(iter(named.drop_null().to_pylist()), None), run_id)
    if store.transaction_version("reconciliations", found_nothing) is not None:
        return
    if not rows["group_observations"] and not rows["offset_observations"]:
        hint = "it observed nothing: run `acktrail run export --observe`, then `acktrail run reconcile`"
    raise InputError(f"run {run_id!r} was not reconciled: there is no verdict to validate", hint=hint)
