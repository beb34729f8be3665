"""The gate: every suite on what a run brought, the results into ``quality_results``, and a stop for a critical one."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from acktrail.errors import ConcurrentCommit, QualityGateFailed
from acktrail.executors import Executors
from acktrail.tables.delta.store import Tables
from acktrail_expectations.inputs.known_runs import count_rows, require_reconciled
from acktrail_expectations.inputs.validation_positions import SEQUENCE
from acktrail_expectations.results import ValidationSummary, headline, record, recorded, unevaluated_lines
from acktrail_expectations.stopped_gate import stopped_lines

_log: Final = logging.getLogger("acktrail.quality")


def validate_run(
    store: Tables,
    run_id: str,
    executors: Executors | None = None,
    *,
    every_record: bool = False,
    now: datetime | None = None,
) -> ValidationSummary:
    """The results of all suites for one run, recorded once, and again when the run has grown since.

    State records and export ranges are the run's own and those that no run validated before; the other tables are the
    run's. A run that has results keeps them as long as the tables have the same rows of it. `every_record` validates
    all records and ranges once more and records that only for a run without results of its present rows. `executors`:
    who evaluates the rules on state records where there are many; None: this process. `now`: what the age of the
    observation is compared with.

    Raises:
        InputError: the run was not reconciled: most rules would have nothing to compare.
    """
    rows = count_rows(store, run_id)
    require_reconciled(store, run_id, rows)
    known, basis = recorded(store, run_id), json.dumps(rows)
    is_known = known is not None and known.run_rows == basis
    if known is not None and is_known and not every_record:
        return known
    from acktrail_expectations.inputs.run_data import RunData
    from acktrail_expectations.suite_frames import run_results, with_earlier_results  # loads Great Expectations

    data = RunData.read(store, run_id, every_record=every_record)
    results = run_results(data, executors, datetime.now(UTC) if now is None else now)
    if known is not None and not every_record:
        results = with_earlier_results(results, known, data)
    summary = ValidationSummary(cluster_id=data.cluster_id, run_id=run_id, results=results, run_rows=basis)
    if is_known:
        return replace(summary, recorded=False)
    try:
        return record(store, summary, SEQUENCE, data.since.sequence, data.validated.transactions)
    except ConcurrentCommit:
        others = recorded(store, run_id)
        if others is None or others.run_rows != basis:
            raise
        return others


def log_summary(summary: ValidationSummary) -> None:
    """One line for the log, and one for each reason why something was not evaluated: warnings where a critical rule
    lacked what to compare rows with."""
    _log.info("%s", headline(summary))
    level = logging.WARNING if summary.critical_without_bounds else logging.INFO
    for line in unevaluated_lines(summary):
        _log.log(level, "%s", line)


def pass_gate(summary: ValidationSummary, hint: str = "") -> None:
    """Let a run pass unless a critical expectation failed. One that found nothing to compare stops nothing, since an
    idle cluster brings nothing new: `unevaluated_lines` says which, and callers show it.

    Raises:
        QualityGateFailed: one did, or raised.
    """
    failures = summary.critical_failures
    if failures:
        shown = hint or (
            f"what to do: docs/rules.md; each failure: acktrail run validate --run-id {summary.run_id} --json, or "
            "quality_results of this run"
        )
        what = [(r.suite, r.expectation, r.unexpected_count or 0) for r in failures]
        raise QualityGateFailed(what, hint="\n".join((shown, *stopped_lines(failures))))
