"""The gate: what suites find on rows of the tables, the results into ``quality_results``, and a stop for a critical
failure. Which runs the tables know, and whether a run was reconciled.

For example, two parts of a table whose rows break a rule::

    rows 0/9 and 0/12 break it                   fails, 2 unexpected: "0/9; 0/12"
    none of the other part                       together: fails, 2 unexpected of all rows compared
    recorded of the run, whose rows are the same the recorded results are those of the run
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit, ConfigurationError, InputError, QualityGateFailed, UnknownName
from acktrail.executors import Executors
from acktrail.format.columns.schemas.table_schemas import QUALITY_RESULTS
from acktrail.model.rules.catalogue import RULE_BY_ID, QualitySeverity
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail.view.cluster_health import greatest

EXAMPLES: Final = 3
"""How many rows that break a rule are named."""

NOT_KNOWN: Final = "not known: "
"""Begins the reason of a rule that has rows, but no known values to compare them with."""

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
_BETWEEN: Final = "; "
_NUMBER: Final = re.compile(r"([0-9]+)")


class RuleState(StrEnum):
    """What is known of a rule in a run; nothing where no row was compared or the expectation raised. A rule that is
    there for information is noted where it is broken, and never fails."""

    HOLDS = "holds"
    FAILS = "fails"
    NOTED = "noted"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityResult:
    """One expectation in one run.

    `success` is None when no row was compared; then `reason` says why. `element_count`: rows that were compared; a rule
    on a second column leaves out rows where it is not known. `unexpected_count`: rows that break the rule.
    `observed_value`: the first few of them, or the value itself. `error`: why it could not be evaluated, then neither
    count is known and `success` is False.
    """

    suite: str
    expectation: str
    severity: QualitySeverity
    success: bool | None
    element_count: int | None = None
    unexpected_count: int | None = None
    observed_value: str | None = None
    error: str | None = None
    reason: str | None = None

    @property
    def state(self) -> RuleState:
        if self.success is None or self.error is not None:
            return RuleState.NOT_EVALUATED
        if self.success:
            return RuleState.HOLDS
        return RuleState.NOTED if self.severity is QualitySeverity.INFO else RuleState.FAILS

    @property
    def row(self) -> dict[str, Any]:
        """The fields and the state as columns of ``QUALITY_RESULTS``."""
        return {**asdict(self), "severity": self.severity.value, "state": self.state.value}


RESULTS: Final = pa.schema([QUALITY_RESULTS.field(each.name) for each in fields(QualityResult)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSummary:
    """Everything evaluated for one run. `recorded`: ``quality_results`` has these results of the run.

    `run_rows`: how many rows the tables had of the run then (JSON, count by table); None where they were not counted.
    `evaluated_at`: when the results were recorded.
    """

    cluster_id: str | None
    run_id: str
    results: tuple[QualityResult, ...]
    recorded: bool = True
    run_rows: str | None = None
    evaluated_at: datetime | None = None

    @property
    def failed(self) -> tuple[QualityResult, ...]:
        """Broken rules that are not for information alone, and expectations that raised."""
        return tuple(of for of in self.results if of.success is False and of.state is not RuleState.NOTED)

    @property
    def states(self) -> Counter[str]:
        """How many rules are in each state."""
        return Counter(result.state for result in self.results)

    @property
    def not_evaluated(self) -> tuple[QualityResult, ...]:
        return tuple(result for result in self.results if result.state is RuleState.NOT_EVALUATED)

    @property
    def critical_without_bounds(self) -> tuple[QualityResult, ...]:
        """Critical rules that should have been evaluated: there were rows, and what bounds them was not known."""
        return tuple(r for r in critical_among(self.not_evaluated) if r.reason and r.reason.startswith(NOT_KNOWN))

    @property
    def critical_failures(self) -> tuple[QualityResult, ...]:
        """What stops a run. A critical expectation that raised counts; one that found nothing to compare does not."""
        return critical_among(self.failed)


def critical_among(results: Iterable[QualityResult]) -> tuple[QualityResult, ...]:
    return tuple(result for result in results if result.severity is QualitySeverity.CRITICAL)


def headline(summary: ValidationSummary) -> str:
    """How many rules hold, fail, are noted and were not evaluated."""
    states = summary.states
    noted = states[RuleState.NOTED]
    legal = f", {noted} noted for information" if noted else ""
    held = f"{states[RuleState.HOLDS]} of {len(summary.results)} expectations hold"
    found = f"{held}, {states[RuleState.FAILS]} fail{legal}"
    critical = len(critical_among(summary.not_evaluated))
    of_them = f" ({critical} of them critical)" if critical else ""
    return f"{found}, {len(summary.not_evaluated)} not evaluated{of_them}"


def unevaluated_lines(summary: ValidationSummary) -> tuple[str, ...]:
    """What was not evaluated and why, a line for each suite and reason, those with critical rules first."""
    alike: dict[tuple[str, str], list[QualityResult]] = {}
    for result in summary.not_evaluated:
        alike.setdefault((result.suite, result.error or result.reason or ""), []).append(result)
    lines = [(len(critical_among(own)), len(own), suite, reason) for (suite, reason), own in alike.items()]
    return tuple(
        f"{suite}: {count} not evaluated, {critical} of them critical: {reason}"
        for critical, count, suite, reason in sorted(lines, key=lambda line: -line[0])
    )


def merged(results: Iterable[QualityResult]) -> tuple[QualityResult, ...]:
    """Results of the same expectations on parts of a table as results on the whole, in order of first appearance."""
    found: dict[tuple[str, str], QualityResult] = {}
    for result in results:
        name = (result.suite, result.expectation)
        found[name] = _merge_two(found[name], result) if name in found else result
    return tuple(found.values())


def _merge_two(one: QualityResult, other: QualityResult) -> QualityResult:
    error = one.error or other.error
    examples = [text for value in (one.observed_value, other.observed_value) if value for text in value.split(_BETWEEN)]
    known = [success for success in (one.success, other.success) if success is not None]
    return replace(
        one,
        success=all(known) if known else None,
        element_count=None if error else (one.element_count or 0) + (other.element_count or 0),
        unexpected_count=None if error else (one.unexpected_count or 0) + (other.unexpected_count or 0),
        observed_value=_BETWEEN.join(sorted(examples, key=_in_order)[:EXAMPLES]) or None,
        error=error,
        reason=None if known else one.reason,
    )


def _in_order(example: str) -> list[str | int]:
    """Numbers by their value: state record 0/9 comes before 0/10, whichever part was evaluated first."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(example)]


def recorded(store: Tables, run_id: str) -> ValidationSummary | None:
    """The newest validation of a run in ``quality_results``; None when there is none."""
    rows = store.read("quality_results", where=pc.field("run_id") == run_id).to_pylist()
    if not rows:
        return None
    evaluated_at = max(row["evaluated_at"] for row in rows)
    newest = [row for row in rows if row["evaluated_at"] == evaluated_at]
    cluster_id, run_rows = newest[0]["cluster_id"], newest[0]["run_rows"]
    results = tuple(map(stored_result, newest))
    return ValidationSummary(
        cluster_id=cluster_id, run_id=run_id, results=results, run_rows=run_rows, evaluated_at=evaluated_at
    )


def stored_result(row: Mapping[str, Any]) -> QualityResult:
    """A row of ``QUALITY_RESULTS``, or some of its columns."""
    values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(QualityResult)}
    return QualityResult(**{**values, "severity": QualitySeverity(row["severity"])})


def record(
    store: Tables,
    summary: ValidationSummary,
    counter: str,
    before: int | None,
    positions: Mapping[str, int] | None = None,
) -> ValidationSummary:
    """Append `summary`'s results and give it with the time of that. In the same commit `counter`, an app transaction,
    counts on from `before`, and `positions` are set. Where another validation was quicker, nothing of this one lands,
    and its results of the same rows take the place.

    Raises:
        ConcurrentCommit: the other one was of another run, or of other rows.
    """
    own = {"cluster_id": summary.cluster_id, "run_id": summary.run_id, "run_rows": summary.run_rows}
    now = datetime.now(UTC)
    rows = [{**own, "evaluated_at": now, **result.row} for result in summary.results]
    moved = {**(positions or {}), counter: (before or 0) + 1}
    new = pa.Table.from_pylist(rows, schema=QUALITY_RESULTS)
    try:
        store.append("quality_results", new, transactions=moved, expected={counter: before})
    except ConcurrentCommit:
        others = recorded(store, summary.run_id)
        if others is None or others.run_rows != summary.run_rows:
            raise
        return others
    return replace(summary, evaluated_at=now)


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
    from acktrail_expectations.evaluation import run_results, with_earlier_results  # loads Great Expectations
    from acktrail_expectations.run_data import SEQUENCE, RunData

    data = RunData.read(store, run_id, every_record=every_record)
    results = run_results(data, executors, datetime.now(UTC) if now is None else now)
    if known is not None and not every_record:
        results = with_earlier_results(results, known, data)
    summary = ValidationSummary(cluster_id=data.cluster_id, run_id=run_id, results=results, run_rows=basis)
    if is_known:
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


def own_rows(store: Tables, run_id: str, name: str, columns: tuple[str, ...] | None = None) -> pa.Table:
    """The rows that a table has of a run; of some columns."""
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
        raise UnknownName("run", run_id, known=sorted(filter(None, known)))
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
