"""Results in ``quality_results``: once a run."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas import QUALITY_RESULTS
from acktrail.tables.store import Tables
from acktrail_expectations.increment import SEQUENCE, Positions
from acktrail_expectations.results import QualityResult, ValidationSummary, result_rows
from acktrail_expectations.severity import Severity

__all__ = ["record", "record_apart", "recorded"]


def recorded(store: Tables, run_id: str) -> ValidationSummary | None:
    """What ``quality_results`` says of a run; None when it says nothing."""
    rows = store.read("quality_results", where=pc.field("run_id") == run_id).to_pylist()
    if not rows:
        return None
    results = tuple(
        QualityResult(
            suite=row["suite"],
            expectation=row["expectation"],
            severity=Severity(row["severity"]),
            success=row["success"],
            element_count=row["element_count"],
            unexpected_count=row["unexpected_count"],
            observed_value=row["observed_value"],
            error=row["error"],
        )
        for row in rows
    )
    return ValidationSummary(cluster_id=rows[0]["cluster_id"], run_id=run_id, results=results)


def record(store: Tables, summary: ValidationSummary, since: Positions, validated: Positions) -> None:
    """Append `summary`'s results and move the positions, both in one commit.

    Raises:
        ConcurrentCommit: another validation committed since `since` was read; nothing landed.
    """
    store.append(
        "quality_results",
        _rows(summary),
        transactions={**validated.transactions, SEQUENCE: (since.sequence or 0) + 1},
        expected={SEQUENCE: since.sequence},
    )


def record_apart(store: Tables, summary: ValidationSummary) -> None:
    """Append `summary`'s results where no run of the export is meant: no position moves.

    Raises:
        ConcurrentCommit: there are results under this run id; nothing landed.
    """
    store.append("quality_results", _rows(summary), transactions={summary.run_id: 1}, expected={summary.run_id: None})


def _rows(summary: ValidationSummary) -> pa.Table:
    return pa.Table.from_pylist(result_rows(summary, datetime.now(UTC)), schema=QUALITY_RESULTS)
