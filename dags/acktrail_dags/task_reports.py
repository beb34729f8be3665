"""What a task shows of its work: a table in its log, a value by XCom, links, messages. What Airflow does about errors.

Messages go by the notifiers that the operator names: Slack, mail, Apprise, a pager.

A notifier's templates have the message as ``acktrail``: ``{{ acktrail.title }}``, ``{{ acktrail.text }}``,
``{{ acktrail.link }}``, ``{{ acktrail.urgency }}`` (``act``, ``look``, ``nothing``), ``{{ acktrail.kind }}``,
``{{ acktrail.subject }}``, ``{{ acktrail.run_id }}``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from airflow.sdk import Context, TriggerRule, task
from airflow.sdk.bases.notifier import BaseNotifier

from acktrail.activity import listening
from acktrail.config import setting
from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, QualityGateFailed, RetryableError
from acktrail.text_tables import printable, table
from acktrail_dags import task_inputs
from acktrail_dags.links import dashboard_address
from acktrail_dags.parameters import in_form_words
from acktrail_provider import task_errors
from acktrail_provider.airflow_names import AirflowSkipException
from acktrail_provider.task_errors import Advice, advice_of

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.notifications import ChangesOf, Known, Notification
    from acktrail.view.run_summary import Summary
    from acktrail_expectations.rule_results import ValidationSummary

RESULT: Final = "result"
"""The XCom key of what a task did: ``run_id``, ``counts``, ``links``, and what else it found."""

MESSAGE: Final = "acktrail"
"""The name of the message in a notifier's templates."""

_log: Final = logging.getLogger("acktrail.dags")
_SHOWN: Final = 30
_ADVICE: Final[Mapping[type[AcktrailError], str]] = {
    QualityGateFailed: "See the report, or quality_results of this run; correct the cause, then clear the run.",
    OutcomeUnknown: "Clear this task: it reads from the tables what landed.",
    ConfigurationError: "Correct it, then clear this task.",
    RetryableError: "When its cause is gone, clear this task.",
    AcktrailError: "Parameters of a run cannot be edited: trigger a new run with corrected ones.",
}
_OF_A_PIPELINE: Final = advice_of(_ADVICE)


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
    address = dashboard_address(context["params"].get("profile"))
    links = {**({"dashboard": address} if address else {}), **more.pop("links", {})}
    numbers = {name: len(of) if isinstance(of, list | tuple) else of for name, of in counts.items()}
    result = {"run_id": run_id, "counts": numbers, "links": links, **more}
    show(f"run {run_id}", ("WHAT", "COUNT"), _flat(numbers))
    for name, link in links.items():
        _log.info("%s: %s", name, printable(link))
    context["ti"].xcom_push(key=RESULT, value=result)
    return result


def hand_over_validation(
    context: Context, run_id: str, summary: ValidationSummary, links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`hand_over` how many expectations hold, fail and were not evaluated, and those that fail. The log has each."""
    failures = _failed_rules(summary)
    if failures:
        shown = [(of["rule"], of["severity"], of["count"], of["where"], of["advice"]) for of in failures]
        show("what fails", ("RULE", "SEVERITY", "ROWS", "WHERE", "WHAT TO DO"), shown)
    counts = {name: summary.states[name] for name in ("holds", "fails", "noted", "not_evaluated")}
    counts["critical_failures"] = len(summary.critical_failures)
    return hand_over(context, run_id, counts, failures=failures, links=dict(links or {}))


def _failed_rules(summary: ValidationSummary) -> list[dict[str, Any]]:
    """Every expectation that fails or raised, those that stop a run first, with its advice of the catalogue."""
    from acktrail.model.rules.catalogue import rule_catalogue

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
            "meaning": rule.meaning if (rule := rule_catalogue().by_id.get(of.expectation)) else "",
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
def as_airflow_errors(
    advice: Advice = _OF_A_PIPELINE, retried: tuple[type[AcktrailError], ...] = (RetryableError, OutcomeUnknown)
) -> Iterator[None]:
    """`task_errors.as_airflow_errors`, in the words of the forms."""
    with task_errors.as_airflow_errors(advice, retried, in_form_words):
        yield


def step(
    minutes: int, errors: Callable[[], ContextDecorator] = as_airflow_errors, **more: Any
) -> Callable[[Callable[..., Any]], Any]:
    """A task that may take `minutes`, with `errors` around its work and `more` settings of Airflow's. Its log has what
    the work is at (``doing``), as where new tables were made."""

    def made(work: Callable[..., Any]) -> Any:
        told = errors()(listening(_log.info)(work))
        return task(multiple_outputs=False, execution_timeout=timedelta(minutes=minutes), **more)(told)

    return made


def chosen_notifiers() -> list[BaseNotifier]:
    """The notifiers that ``ACKTRAIL_NOTIFIERS`` names as ``module:function``; the function takes no argument and
    returns a list of Airflow notifiers. Empty when the variable is not set. Raises ImportError, AttributeError: the
    name is wrong: a DAG of resets shows it as an import error."""
    named = setting("ACKTRAIL_NOTIFIERS")
    if not named:
        return []
    module, _, function = named.partition(":")
    return list(getattr(import_module(module), function)())


@step(5, trigger_rule=TriggerRule.ALL_DONE)
def notify(target: task_inputs.ReconcileTarget | None, **context: Unpack[Context]) -> dict[str, Any]:
    """Send what changed since the last message: the gate, critical findings, statuses of groups. Runs also when the
    gate stops the run. Skips where nothing was reconciled, and without ``ACKTRAIL_NOTIFIERS``."""
    from acktrail.view.notifications import changed

    return _send_changes(target, context, changed)


@step(5, task_id="notify", trigger_rule=TriggerRule.ALL_DONE)
def notify_of_branches(target: task_inputs.Target | None, **context: Unpack[Context]) -> dict[str, Any]:
    """Send what changed since the last message as branches know it (`Branch.messages`). Skips where no look was taken,
    and without ``ACKTRAIL_NOTIFIERS``."""
    from acktrail.branches import loaded

    def changes_of(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:
        return tuple(message for of_branch in loaded("messages") for message in of_branch(known, tables, run_id))

    return _send_changes(target, context, changes_of)


def _send_changes(target: task_inputs.Target | None, context: Context, changes_of: ChangesOf) -> dict[str, Any]:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.notifications import send_changes

    if target is None:
        raise AirflowSkipException("this run made no observation")
    if not chosen_notifiers():
        raise AirflowSkipException("ACKTRAIL_NOTIFIERS does not name notifiers")
    dashboard = dashboard_address(target["profile"])

    def send(message: Notification) -> None:
        """By new notifiers: one that rendered its templates keeps their text."""
        about = {
            "kind": str(message.kind),
            "subject": message.subject,
            "urgency": message.urgency.value,
            "title": message.title,
            "text": message.text,
            "link": message.address(dashboard) if dashboard else "",
            "run_id": target["run_id"],
        }
        for notifier in chosen_notifiers():
            try:
                notifier(cast("Context", {**context, MESSAGE: about}))
            except Exception as error:
                name, hint = type(notifier).__name__, "look at its service and its Airflow connection"
                raise RetryableError(f"the notifier {name} failed: {error}", hint=hint) from error

    sent = send_changes(Tables(task_inputs.tables_at(target)), target["run_id"], send, changes_of)
    show("sent", ("ABOUT", "MESSAGE"), [(str(each.kind), each.title) for each in sent.messages])
    return hand_over(context, target["run_id"], {"messages": len(sent.messages), "changes": sent.changes})
