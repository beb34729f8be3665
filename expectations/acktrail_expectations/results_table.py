"""Results in ``quality_results``: once a run, and again when the run has grown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import QUALITY_RESULTS
from acktrail.tables.delta.store import Tables
from acktrail_expectations.inputs.validation_positions import SEQUENCE, Positions
from acktrail_expectations.results import QualityResult, ValidationSummary, result_rows
from acktrail_expectations.severity import Severity

__all__ = ["record", "record_apart", "recorded"]


def recorded(store: Tables, run_id: str) -> ValidationSummary | None:
    """What ``quality_results`` says of a run: its newest validation; None when there is none."""
    rows = store.read("quality_results", where=pc.field("run_id") == run_id).to_pylist()
    if not rows:
        return None
    newest = max(row["evaluated_at"] for row in rows)
    newest_rows = [row for row in rows if row["evaluated_at"] == newest]
    return ValidationSummary(
        cluster_id=newest_rows[0]["cluster_id"],
        run_id=run_id,
        results=tuple(map(_result, newest_rows)),
        run_rows=newest_rows[0]["run_rows"],
    )


def _result(row: Mapping[str, Any]) -> QualityResult:
    """A row written before there were states calls a rule a success that compared nothing."""
    nothing = row["state"] is None and row["error"] is None and row["element_count"] == 0
    return QualityResult(
        suite=row["suite"],
        expectation=row["expectation"],
        severity=Severity(row["severity"]),
        success=None if nothing else row["success"],
        element_count=row["element_count"],
        unexpected_count=row["unexpected_count"],
        observed_value=row["observed_value"],
        error=row["error"],
        reason="no row was compared" if nothing else row["reason"],
    )


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
        ConcurrentCommit: another process recorded results under this run id at the same time; nothing landed.
    """
    before = store.transaction_version("quality_results", summary.run_id)
    store.append(
        "quality_results",
        _rows(summary),
        transactions={summary.run_id: (before or 0) + 1},
        expected={summary.run_id: before},
    )


def _rows(summary: ValidationSummary) -> pa.Table:
    return pa.Table.from_pylist(result_rows(summary, datetime.now(UTC)), schema=QUALITY_RESULTS)
