"""The gate: suites on rows of the tables, the results into ``quality_results``, and a stop for a critical failure.

Here, too: which runs the tables know, and whether a run was reconciled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit, ConfigurationError, InputError, QualityGateFailed, UnknownName
from acktrail.executors import Executors
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail.view.cluster_health import greatest
from acktrail_expectations.results import (
    QualityResult,
    ValidationSummary,
    headline,
    record,
    recorded,
    rows_text,
    unevaluated_lines,
)

MOST_RULES: Final = 5
"""Rules that are explained where a gate stops; more are counted."""

_RUN_TIME_COLUMNS: Final = (
    ("reconciliations", "observed_at"),
    ("share_partition_states", "observed_at"),
    ("offset_observations", "observed_at"),
    ("export_ranges", "exported_at"),
)
"""Tables that name runs, each with its column of times; a run may have rows in any of them."""

_COUNTED: Final = ("group_observations", *dict(_RUN_TIME_COLUMNS))
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
    known, basis = recorded(store, run_id), rows_text(rows)
    is_known = known is not None and known.run_rows == basis
    if known is not None and is_known and not every_record:
        return known
    from acktrail_expectations.run_data import SEQUENCE, RunData
    from acktrail_expectations.suite_frames import run_results, with_earlier_results  # loads Great Expectations

    data = RunData.read(store, run_id, every_record=every_record)
    results = run_results(data, executors, datetime.now(UTC) if now is None else now)
    if known is not None and not every_record:
        results = with_earlier_results(results, known, data)
    summary = ValidationSummary(cluster_id=data.cluster_id, run_id=run_id, results=results, run_rows=basis)
    if is_known:
        return replace(summary, recorded=False)
    return keep(store, summary, SEQUENCE, data.since.sequence, data.validated.transactions)


def validate_once(
    store: Tables,
    run_id: str,
    cluster_id: str | None,
    rows: Mapping[str, int | None],
    results: Callable[[], Sequence[QualityResult]],
) -> ValidationSummary:
    """Let a suite pass that has a run id of its own, or stop it: on its recorded `results` as long as they are of as
    many `rows`, else on new ones. Raises QualityGateFailed."""
    summary, basis = recorded(store, run_id), rows_text(rows)
    if summary is None or summary.run_rows != basis:
        new = ValidationSummary(cluster_id=cluster_id, run_id=run_id, results=tuple(results()), run_rows=basis)
        summary = keep(store, new, run_id, store.transaction_version("quality_results", run_id))
    log_summary(summary)
    pass_gate(summary, f"the results are in quality_results under run id {run_id}")
    return summary


def keep(
    store: Tables,
    summary: ValidationSummary,
    counter: str,
    before: int | None,
    positions: Mapping[str, int] | None = None,
) -> ValidationSummary:
    """Record `summary`; where another validation was quicker, its results of the same rows take the place.

    Raises:
        ConcurrentCommit: it was of another run, or of other rows.
    """
    try:
        return record(store, summary, counter, before, positions)
    except ConcurrentCommit:
        others = recorded(store, summary.run_id)
        if others is None or others.run_rows != summary.run_rows:
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
        QualityGateFailed: one did, or raised. Its hint says which rule, where, what to do, and the page of the rule.
    """
    failures = summary.critical_failures
    if failures:
        shown = hint or (
            f"what to do: docs/rules.md; each failure: acktrail run validate --run-id {summary.run_id} --json, or "
            "quality_results of this run"
        )
        what = [(r.suite, r.expectation, r.unexpected_count or 0) for r in failures]
        raise QualityGateFailed(what, hint="\n".join((shown, *_stopped_lines(failures))))


def _stopped_lines(failures: Sequence[QualityResult]) -> list[str]:
    """A line for each of the first rules that stop a run. Names of groups and topics are made printable."""
    lines = [_line(result) for result in failures[:MOST_RULES]]
    more = len(failures) - MOST_RULES
    return [*lines, f"and {more} more"] if more > 0 else lines


def _line(result: QualityResult) -> str:
    rule = RULE_BY_ID.get(result.expectation)
    where = printable(result.error or result.observed_value or "")
    text = f"{result.expectation} ({result.suite})" + (f", first: {where}" if where else "")
    return text if rule is None else f"{text}. What to do: {rule.advice} See docs/{rule.page}"


def own_rows(store: Tables, run_id: str, name: str, columns: tuple[str, ...]) -> pa.Table:
    """Some columns of the rows that a table has of a run."""
    return store.read(name, columns=columns, where=pc.field("run_id") == run_id)


def choose_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run.
    """
    if run_id is not None and any(own_rows(store, run_id, name, ("run_id",)).num_rows for name, _ in _RUN_TIME_COLUMNS):
        return run_id
    known: set[str] = set()
    for name, column in _RUN_TIME_COLUMNS:
        newest = greatest(store, name, column)
        if run_id is None and newest is not None:
            rows = store.read(name, columns=["run_id", column], where=pc.field(column) >= pa.scalar(newest))
            return str(rows.sort_by([(column, "descending"), ("run_id", "descending")])["run_id"][0])
        known |= set() if newest is None else {*store.read(name, columns=["run_id"])["run_id"].unique().to_pylist()}
    if run_id is not None:
        raise UnknownName("run", run_id, nearest=get_close_matches(run_id, sorted(filter(None, known)), n=3))
    raise ConfigurationError(f"no run in the tables at {store.root}", hint="run `acktrail run export` first")


def count_rows(store: Tables, run_id: str) -> dict[str, int]:
    """The number of rows that each table has of a run."""
    return {name: own_rows(store, run_id, name, ("run_id",)).num_rows for name in _COUNTED}


def require_reconciled(store: Tables, run_id: str, rows: Mapping[str, int]) -> None:
    """See that a run was reconciled, to its end.

    Raises:
        InputError: it was not, or only in part.
    """
    states, verdicts = rows["share_partition_states"], rows["reconciliations"]
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
