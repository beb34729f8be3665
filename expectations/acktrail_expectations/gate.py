"""The gate: the rules of a run are evaluated once, the results recorded, and a critical failure stops the run.

The task `reconcile` evaluates and records (`validate_run`); the task `validate` reads that (`recorded_run`) and decides
(`pass_gate`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from acktrail.errors import QualityGateFailed
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail.text_tables import printable
from acktrail_expectations.known_runs import cluster_of_run, count_rows, require_reconciled, run_rows
from acktrail_expectations.rule_results import (
    QualityResult,
    ValidationSummary,
    headline,
    record,
    recorded,
    unevaluated_lines,
)
from acktrail_jobs.frames import JobSession

MOST_RULES: Final = 5
"""Rules that are explained where a gate stops; more are counted."""
_log: Final = logging.getLogger("acktrail.quality")


def recorded_run(store: Tables, run_id: str) -> ValidationSummary | None:
    """The recorded results of a run, of as many rows as the tables have of it now; None: it is to be validated."""
    known = recorded(store, run_id)
    return known if known is not None and known.run_rows == json.dumps(count_rows(store, run_id)) else None


def validate_run(
    store: Tables,
    run_id: str,
    spark: JobSession | None = None,
    *,
    every_record: bool = False,
    now: datetime | None = None,
) -> ValidationSummary:
    """The results of all suites for one run, recorded once, and again when the run has grown since.

    State records and export ranges are the run's own and those that no run validated before; the other tables are the
    run's. A run that has results keeps them as long as the tables have the same rows of it. `every_record` validates
    all records and ranges once more and records that only for a run without results of its present rows. `spark`:
    where the rules on many state records are evaluated; None: in this process. `now`: what the age of the observation
    is compared with.

    Raises:
        InputError: the run was not reconciled: most rules would have nothing to compare.
    """
    present = recorded_run(store, run_id)
    if present is not None and not every_record:
        return present
    from acktrail_expectations.evaluation import run_results, with_earlier_results  # loads Great Expectations
    from acktrail_expectations.validation_input import SEQUENCE, ValidationInput

    rows = run_rows(store, run_id)
    require_reconciled(store, run_id, rows)
    data = ValidationInput.read(store, run_id, rows, every_record=every_record)
    results = run_results(data, spark, datetime.now(UTC) if now is None else now)
    if not every_record and (earlier := recorded(store, run_id)) is not None:
        results = with_earlier_results(results, earlier, data)
    basis = json.dumps({name: own.num_rows for name, own in rows.items()})
    summary = ValidationSummary(cluster_id=cluster_of_run(rows), run_id=run_id, results=results, run_rows=basis)
    if present is not None:
        return replace(summary, recorded=False)
    return record(store, summary, SEQUENCE, data.since.sequence, data.validated.transactions)


def validate_once(
    store: Tables,
    run_id: str,
    cluster_id: str | None,
    rows: Mapping[str, int | None],
    results: Callable[[], Sequence[QualityResult]],
) -> ValidationSummary:
    """Let a suite pass that has a run id of its own, or stop it: on its recorded `results` as long as they are of as
    many `rows`, else on new ones. Raises QualityGateFailed."""
    summary, basis = recorded(store, run_id), json.dumps(rows)
    if summary is None or summary.run_rows != basis:
        new = ValidationSummary(cluster_id=cluster_id, run_id=run_id, results=tuple(results()), run_rows=basis)
        summary = record(store, new, run_id, store.transaction_version("quality_results", run_id))
    log_summary(summary)
    pass_gate(summary, f"the results are in quality_results under run id {run_id}")
    return summary


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
        QualityGateFailed: one did, or raised. Its hint says which rule, where, what to do, and the page of the rule.
    """
    failures = summary.critical_failures
    if failures:
        shown = hint or (
            "what to do: docs/reference/rules.md; each failure: "
            f"acktrail run validate --run-id {summary.run_id} --json, or quality_results of this run"
        )
        what = [(r.suite, r.expectation, r.unexpected_count or 0) for r in failures]
        raise QualityGateFailed(what, hint="\n".join((shown, *_stopped_lines(failures))))


def _stopped_lines(failures: Sequence[QualityResult]) -> list[str]:
    """A line for each of the first rules that stop a run. Names of groups and topics are made printable."""
    lines = [_line(result) for result in failures[:MOST_RULES]]
    more = len(failures) - MOST_RULES
    return [*lines, f"and {more} more"] if more > 0 else lines


def _line(result: QualityResult) -> str:
    rule = rule_catalogue().by_id.get(result.expectation)
    where = printable(result.error or result.observed_value or "")
    text = f"{result.expectation} ({result.suite})" + (f", first: {where}" if where else "")
    return text if rule is None else f"{text}. What to do: {rule.advice} See docs/{rule.page}"
