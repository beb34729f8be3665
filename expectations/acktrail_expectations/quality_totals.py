"""Rows of ``quality_totals``: the results of a validation added up by suite, each validation exactly once.

Results and totals are two tables, so two commits. The totals count validations as ``quality_results`` does: where the
counters differ by the one just recorded, its totals are added; where a process died in between, or the results are of
releases without totals, the totals of everything that lacks them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import QUALITY_TOTALS
from acktrail.errors import ConcurrentCommit
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail.tables.delta.store import Tables
from acktrail_expectations.results import QualityResult, RuleState, ValidationSummary, stored_result

_RESULTS: Final = "quality_results"
_TOTALS: Final = "quality_totals"
_COLUMNS: Final = (
    "cluster_id", "run_id", "evaluated_at", "suite", "expectation", "severity", "success", "state", "element_count",
    "error",
)  # fmt: skip


def record_totals(store: Tables, counter: str, newest: ValidationSummary | None, where: pc.Expression) -> None:
    """Add the totals of what `counter` counts in ``quality_results`` and ``quality_totals`` lacks.

    `newest`: the validation that was recorded just now, None where none was. `where`: the results that `counter`
    counts.
    """
    done = store.transaction_version(_TOTALS, counter)
    recorded = store.transaction_version(_RESULTS, counter)
    if recorded is None or recorded <= (done or 0):
        return
    is_next = newest is not None and recorded == (done or 0) + 1
    rows = totals_of(newest) if newest is not None and is_next else _missing(store, where)
    table = pa.Table.from_pylist(rows, schema=QUALITY_TOTALS)
    try:
        store.append(_TOTALS, table, transactions={counter: recorded}, expected={counter: done})
    except ConcurrentCommit:
        return  # another process added them


def totals_of(summary: ValidationSummary) -> list[dict[str, Any]]:
    """One row a suite, in the order of the suites."""
    own = {"cluster_id": summary.cluster_id, "run_id": summary.run_id, "evaluated_at": summary.evaluated_at}
    suites = dict.fromkeys(result.suite for result in summary.results)
    return [{**own, "suite": suite, **_counts(r for r in summary.results if r.suite == suite)} for suite in suites]


def _counts(results: Iterable[QualityResult]) -> dict[str, int]:
    own = list(results)
    states = [result.state for result in own]
    broken = [result.severity for result in own if result.state is RuleState.FAILS]
    return {
        "holds": states.count(RuleState.HOLDS),
        "fails": len(broken),
        "noted": states.count(RuleState.NOTED),
        "not_evaluated": states.count(RuleState.NOT_EVALUATED),
        "critical_fails": broken.count(QualitySeverity.CRITICAL),
        "rows_compared": sum(result.element_count or 0 for result in own),
    }


def _missing(store: Tables, where: pc.Expression) -> list[dict[str, Any]]:
    """The totals of every validation among the results that has none."""
    there = {_validation(row) for row in store.read(_TOTALS, columns=["run_id", "evaluated_at"]).to_pylist()}
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in store.read(_RESULTS, columns=list(_COLUMNS), where=where).to_pylist():
        if _validation(row) not in there:
            found.setdefault((*_validation(row), row["cluster_id"], row["suite"]), []).append(row)
    return [
        {"run_id": run_id, "evaluated_at": at, "cluster_id": cluster_id, "suite": suite}
        | _counts(map(stored_result, rows))
        for (run_id, at, cluster_id, suite), rows in found.items()
    ]


def _validation(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["run_id"], row["evaluated_at"]
