"""The gate: every suite on what a run brought, the results into ``quality_results``, and a stop for a critical one."""

from __future__ import annotations

from dataclasses import replace

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, QualityGateFailed
from acktrail.tables.store import Tables
from acktrail_expectations.examination import run_suites
from acktrail_expectations.recording import record, recorded
from acktrail_expectations.results import ValidationSummary
from acktrail_expectations.run_data import RunData

__all__ = ["examine", "pass_gate", "validate"]


def validate(tables: TablesConfig, run_id: str) -> ValidationSummary:
    """Examine a run, then let it pass or stop it.

    Raises:
        QualityGateFailed: a critical expectation failed or could not be evaluated. The results are recorded by then.
        RetryableError, ConfigurationError, OutcomeUnknown: the tables could not be read or written.
    """
    summary = examine(Tables(tables), run_id)
    pass_gate(summary)
    return summary


def examine(store: Tables, run_id: str, *, every_record: bool = False) -> ValidationSummary:
    """The results of all suites for one run, recorded once.

    State records and export ranges are those that no run validated before, and the run's own ranges; the other tables
    are the run's. A run that has results keeps them: they are given back as they stand. `every_record` validates all
    records and ranges once more and records that only for a run without results.
    """
    known = recorded(store, run_id)
    if known is not None and not every_record:
        return known
    data = RunData.read(store, run_id, every_record=every_record)
    summary = ValidationSummary(cluster_id=data.cluster_id, run_id=run_id, results=run_suites(data))
    if known is not None:
        return replace(summary, recorded=False)
    return _recorded_once(store, summary, data)


def pass_gate(summary: ValidationSummary) -> None:
    """Let a run pass unless a critical expectation failed.

    Raises:
        QualityGateFailed: one did, or could not be evaluated.
    """
    failures = [(r.suite, r.expectation, r.unexpected_count or 0) for r in summary.critical_failures]
    if failures:
        raise QualityGateFailed(failures, hint=_hint(summary))


def _recorded_once(store: Tables, summary: ValidationSummary, data: RunData) -> ValidationSummary:
    try:
        record(store, summary, data.since, data.validated)
    except ConcurrentCommit:
        others = recorded(store, summary.run_id)
        if others is None:
            raise
        return others
    return summary


def _hint(summary: ValidationSummary) -> str:
    first = summary.critical_failures[0]
    where = first.error or first.observed_value
    shown = f"; first: {where}" if where else ""
    return f"acktrail validate --run-id {summary.run_id} --json, or quality_results of this run{shown}"
