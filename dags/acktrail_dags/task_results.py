"""What a task shows of its work: a table in its log, a small value by XCom, links to report and dashboard; and what
Airflow does about acktrail's errors, with advice for a person in the task's log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow.sdk.exceptions import AirflowFailException

from acktrail.config import dashboard_url
from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, QualityGateFailed, RetryableError
from acktrail.plain_tables import printable, table
from acktrail_dags.parameters import in_form_words

if TYPE_CHECKING:
    from airflow.sdk import Context

    from acktrail.view.run_summary import Summary
    from acktrail_expectations.results import ValidationSummary

RESULT: Final = "result"
"""The XCom key of what a task did: ``run_id``, ``counts``, ``links``, and what else it found."""

_log: Final = logging.getLogger("acktrail.dags")
_PLUGINS: Final = "airflow.plugins"
_PAGE: Final = "/plugin/acktrail"
_SHOWN: Final = 30
_ADVICE: Final[tuple[tuple[type[AcktrailError], str], ...]] = (
    (QualityGateFailed, "See the report, or quality_results of this run, correct the cause, clear the run."),
    (OutcomeUnknown, "Verify what happened before this task is cleared."),
    (ConfigurationError, "Correct the connection, the parameters or the ACLs, then clear this task."),
    (RetryableError, "Airflow tries again; when all tries fail, check broker and storage, then clear this task."),
    (AcktrailError, "Correct the input, then clear this task."),
)


def show(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table in the task's log, a line each, names made harmless."""
    found = list(rows)
    _log.info("%s", printable(title))
    if not found:
        return
    for line in table(headers, found[:_SHOWN]).splitlines():
        _log.info("%s", line)
    if len(found) > _SHOWN:
        _log.info("... and %d more", len(found) - _SHOWN)


def hand_over(context: Context, run_id: str, counts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Push what the task did as XCom ``result`` and log its counts and links; gives the same. Of a list among the
    counts it has how long it is: an XCom is small."""
    links = {**dashboard_links(), **more.pop("links", {})}
    numbers = {name: len(of) if isinstance(of, list | tuple) else of for name, of in counts.items()}
    result = {"run_id": run_id, "counts": numbers, "links": links, **more}
    show(f"run {run_id}", ("WHAT", "COUNT"), _flat(numbers))
    for name, link in links.items():
        _log.info("%s: %s", name, printable(link))
    context["ti"].xcom_push(key=RESULT, value=result)
    return result


def dashboard_links() -> dict[str, str]:
    """Where the dashboard is: at ``ACKTRAIL_DASHBOARD_URL``, else in Airflow's own pages where acktrail's plugin is
    installed, else nowhere."""
    from airflow.configuration import conf

    try:
        address = dashboard_url()
    except ConfigurationError as error:
        _log.warning("%s", error.message)
        address = None
    if address is None and any(each.value.startswith("acktrail") for each in entry_points(group=_PLUGINS)):
        address = conf.get("api", "base_url", fallback="").rstrip("/") + _PAGE
    return {"dashboard": address} if address else {}


def run_link(dag_id: str, run_id: str) -> str:
    """Where Airflow shows a run."""
    from airflow.configuration import conf

    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def hand_over_validation(
    context: Context, run_id: str, summary: ValidationSummary, links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`hand_over` how many expectations hold, fail and were not evaluated, and those that fail. The log has each."""
    failures = _failed_rules(summary)
    if failures:
        shown = [(of["rule"], of["severity"], of["count"], of["where"], of["advice"]) for of in failures]
        show("what fails", ("RULE", "SEVERITY", "ROWS", "WHERE", "WHAT TO DO"), shown)
    states = Counter(result.state.value for result in summary.results)
    counts = {name: states[name] for name in ("holds", "fails", "noted", "not_evaluated")}
    counts["critical_failures"] = len(summary.critical_failures)
    return hand_over(context, run_id, counts, failures=failures, links=dict(links or {}))


def _failed_rules(summary: ValidationSummary) -> list[dict[str, Any]]:
    """Every expectation that fails or raised, those that stop a run first, with its advice of the catalogue."""
    from acktrail.model.rules.catalogue import RULE_BY_ID

    stopping = {(of.suite, of.expectation) for of in summary.critical_failures}
    ranked = sorted(summary.failed, key=lambda of: (of.suite, of.expectation) not in stopping)
    return [
        {
            "suite": of.suite,
            "rule": of.expectation,
            "severity": of.severity.value,
            "stops": (of.suite, of.expectation) in stopping,
            "count": of.unexpected_count,
            "where": printable(of.error or of.observed_value or ""),
            "meaning": rule.meaning if (rule := RULE_BY_ID.get(of.expectation)) else "",
            "advice": rule.advice if rule else "see quality_results of this run",
        }
        for of in ranked
    ]


def show_trouble(summary: Summary) -> None:
    """Who is in trouble, and every group with what its share partitions add up to, the worst first."""
    from acktrail.view.partition_rows import group_line
    from acktrail.view.run_summary import trouble
    from acktrail.view.wording import in_words, instant

    rows = [
        (
            of.group_id,
            in_words(of.status or "not known"),
            instant(of.status_since) if of.status else None,
            group_line(of),
        )
        for of in summary.groups
    ]
    show(trouble(summary)[0], ("GROUP", "STATUS", "SINCE", "SHARE PARTITIONS"), rows)


def _flat(counts: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Counts within counts as rows of their own."""
    rows: list[tuple[str, object]] = []
    for name, value in counts.items():
        is_inner = isinstance(value, Mapping)
        rows += ((f"{name}: {of}", number) for of, number in value.items()) if is_inner else [(name, value)]
    return rows


@contextmanager
def as_airflow_errors(*, can_run_again: bool = False) -> Iterator[None]:
    """Around a task's work: a RetryableError goes to Airflow's retries, any other AcktrailError fails at once.
    `can_run_again`: the task reads from its tables what it did, so an OutcomeUnknown goes to Airflow's retries too. Any
    other exception is a defect and passes unchanged: its traceback is in the log, the task's retries apply."""
    try:
        yield
    except AcktrailError as error:
        if can_run_again and isinstance(error, OutcomeUnknown):
            _log.warning("%s. Airflow tries again and reads from the tables what landed.", error.message)
            raise
        advice = next(text for kind, text in _ADVICE if isinstance(error, kind))
        message, hint = in_form_words(error.message), in_form_words(error.hint)
        level = logging.WARNING if isinstance(error, RetryableError) else logging.ERROR
        _log.log(level, "%s. %s%s", message, f"{hint}. " if hint else "", advice)
        if isinstance(error, RetryableError):
            raise
        raise AirflowFailException(f"{message} ({hint})" if hint else message) from error
