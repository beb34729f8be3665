"""Which runs the tables know, and how many rows they have of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail_expectations.results import ValidationSummary

_RUN_TIME_COLUMNS: Final = (
    ("reconciliations", "observed_at"),
    ("share_partition_states", "observed_at"),
    ("offset_observations", "observed_at"),
    ("export_ranges", "exported_at"),
)
"""Tables that name runs, each with its column of times; a run may have rows in any of them."""

_COUNTED: Final = (
    "export_ranges", "group_observations", "offset_observations", "share_partition_states", "reconciliations"
)  # fmt: skip
_RULE_ON_EVERY_ROW: Final = "share_partition_once"
"""A rule that compares every row of its table, in two suites."""


def choose_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run.
    """
    if run_id is not None and any(_count(store, name, run_id) for name, _ in _RUN_TIME_COLUMNS):
        return run_id
    known: set[str] = set()
    for name, column in _RUN_TIME_COLUMNS:
        runs = _run_times(store, name, column)
        if runs and run_id is None:
            return max((instant, run) for run, instant in runs.items())[1]
        known |= runs.keys()
    if run_id is not None:
        raise UnknownName("run", run_id, nearest=get_close_matches(run_id, sorted(known), n=3))
    raise ConfigurationError(f"no run in the tables at {store.root}", hint="run `acktrail export` first")


def _run_times(store: Tables, name: str, column: str) -> dict[str, datetime]:
    """Every run with its newest instant, read piece by piece."""
    snapshot = store.snapshot(name)
    newest: dict[str, datetime] = {}
    for batch in () if snapshot is None else snapshot.batches(columns=["run_id", column]):
        rows = pa.Table.from_batches([batch]).group_by("run_id").aggregate([(column, "max")]).to_pylist()
        for row in rows:
            if row["run_id"] is not None and row[f"{column}_max"] is not None:
                newest[row["run_id"]] = max(row[f"{column}_max"], newest.get(row["run_id"], row[f"{column}_max"]))
    return newest


def count_rows(store: Tables, run_id: str) -> dict[str, int]:
    """The number of rows that each table has of a run."""
    return {name: _count(store, name, run_id) for name in _COUNTED}


def _count(store: Tables, name: str, run_id: str) -> int:
    return store.read(name, columns=["run_id"], where=pc.field("run_id") == run_id).num_rows


def is_current(summary: ValidationSummary, rows: Mapping[str, int]) -> bool:
    """Whether a recorded validation covers all present rows of its run.

    Where the validation did not record the number of rows, its results on states and reconciliations show it.
    """
    if summary.run_rows is not None:
        known: object = json.loads(summary.run_rows)
        return known == dict(rows)
    counted = {r.suite: r.element_count for r in summary.results if r.expectation == _RULE_ON_EVERY_ROW}
    return all(count == rows.get(suite) for suite, count in counted.items())


def require_reconciled(store: Tables, run_id: str, rows: Mapping[str, int]) -> None:
    """See that a run was reconciled, to its end.

    Raises:
        InputError: it was not, or only in part.
    """
    states, verdicts = rows["share_partition_states"], rows["reconciliations"]
    hint = f"run `acktrail reconcile --run-id {run_id}` first"
    if verdicts < states:
        raise InputError(f"run {run_id!r}: {verdicts} of {states} share partitions are reconciled", hint=hint)
    if verdicts:
        return
    named = store.read("offset_observations", columns=["cluster_id"], where=pc.field("run_id") == run_id)["cluster_id"]
    found_nothing = reconciliation_commit(next(iter(named.drop_null().to_pylist()), None), run_id, "0")
    if store.transaction_version("reconciliations", found_nothing) is not None:
        return
    if not rows["group_observations"] and not rows["offset_observations"]:
        hint = "it observed nothing: run `acktrail export --observe`, then `acktrail reconcile`"
    raise InputError(f"run {run_id!r} was not reconciled: there is no verdict to validate", hint=hint)
