"""Results in ``quality_results``: once a run, and again when the run has grown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import QUALITY_RESULTS
from acktrail.tables.delta.store import Tables
from acktrail_expectations.inputs.validation_positions import SEQUENCE, ValidationPositions
from acktrail_expectations.results import QualityResult, QualitySeverity, ValidationSummary


def recorded(store: Tables, run_id: str) -> ValidationSummary | None:
    """The newest validation of a run in ``quality_results``; None when there is none."""
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
    values = {field.name: row[field.name] for field in fields(QualityResult)}
    if row["state"] is None and row["error"] is None and row["element_count"] == 0:
        values |= {"success": None, "reason": "no row was compared"}
    return QualityResult(**{**values, "severity": QualitySeverity(row["severity"])})


def record(
    store: Tables, summary: ValidationSummary, since: ValidationPositions, validated: ValidationPositions
) -> None:
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


def record_without_positions(store: Tables, summary: ValidationSummary) -> None:
    """Append the results of a validation that is of no run of the exporter.

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
    own: dict[str, Any] = {"cluster_id": summary.cluster_id, "run_id": summary.run_id, "run_rows": summary.run_rows}
    own["evaluated_at"] = datetime.now(UTC)
    return pa.Table.from_pylist([{**own, **result.row} for result in summary.results], schema=QUALITY_RESULTS)
