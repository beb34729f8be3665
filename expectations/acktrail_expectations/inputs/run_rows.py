"""How much the tables have of a run: what its validation stands on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.tables.delta.commit_ids import reconciliation_commit
from acktrail.tables.delta.store import Tables
from acktrail_expectations.results import ValidationSummary

__all__ = ["count_rows", "is_current", "require_reconciled"]

_TABLES: Final = (
    "export_ranges",
    "group_observations",
    "offset_observations",
    "share_partition_states",
    "reconciliations",
)
_ONCE: Final = "share_partition_once"
"""A rule that looks at every row of its table, in two suites."""


def count_rows(store: Tables, run_id: str) -> dict[str, int]:
    """The number of rows that each table has of a run."""
    own = pc.field("run_id") == run_id
    return {name: store.read(name, columns=["run_id"], where=own).num_rows for name in _TABLES}


def is_current(summary: ValidationSummary, rows: Mapping[str, int]) -> bool:
    """Whether a recorded validation is about all that there is of its run now.

    Of a validation that did not record its rows, those of the states and of the reconciliation are compared.
    """
    if summary.run_rows is not None:
        known: object = json.loads(summary.run_rows)
        return known == dict(rows)
    counted = {r.suite: r.element_count for r in summary.results if r.expectation == _ONCE}
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
    if verdicts or _is_marked(store, run_id):
        return
    if not rows["group_observations"] and not rows["offset_observations"]:
        hint = "it observed nothing: run `acktrail export --observe`, then `acktrail reconcile`"
    raise InputError(f"run {run_id!r} was not reconciled: there is no verdict to validate", hint=hint)


def _is_marked(store: Tables, run_id: str) -> bool:
    """Whether there is a commit of a reconciliation that found no share partition."""
    own = pc.field("run_id") == run_id
    named = store.read("offset_observations", columns=["cluster_id"], where=own)["cluster_id"].drop_null()
    cluster_id = named[0].as_py() if len(named) else None
    return store.transaction_version("reconciliations", reconciliation_commit(cluster_id, run_id, "0")) is not None
