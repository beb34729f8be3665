"""What the tasks of a reset do: each calls one step of ``acktrail.group_changes.steps``, errors turned into Airflow's.

Between tasks travel names, places and numbers; the plan itself lies in the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import ConfigurationError, InputError, OutcomeUnknown, RetryableError, UnknownName
from acktrail_dags.airflow_errors import advised
from acktrail_dags.connection import kafka_config
from acktrail_dags.parameters import DEFAULT_KAFKA_CONN_ID

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = [
    "Asked",
    "Planned",
    "check_plan",
    "check_result",
    "execute",
    "note_decision",
    "plan",
    "preflight",
    "recheck",
    "validate_reset",
    "validate_rollback",
    "verify",
    "wait_until_empty",
]

_log: Final = logging.getLogger("acktrail.dags")

_VALUE_OF: Final[Mapping[str, str]] = {
    "to-offset": "offset",
    "shift-by": "shift_by",
    "to-datetime": "datetime",
    "to-history": "datetime",
    "by-duration": "duration",
    "from-file": "file",
}
"""The field of the form that each strategy takes its value from; the others take none."""

_WAITED_FOR: Final = "group_not_empty"


class Asked(TypedDict):
    """What is to be reset, and how."""

    kafka_conn_id: str
    tables_uri: str
    request: dict[str, Any]
    partial: bool
    wait_for_empty_s: int
    watch_s: int


class Planned(TypedDict):
    """A stored plan, with what a person reads of it."""

    kafka_conn_id: str
    tables_uri: str
    plan_id: str
    plan_hash: str
    preview: str
    refusals: list[str]
    partial: bool
    watch_s: int


def validate_reset(context: Context) -> Asked:
    """The request that the form describes. Fails with the name of the rule that it breaks."""
    from acktrail.group_changes import steps

    with advised():
        chosen = context["params"]
        _check_requester(context)
        asked = {
            "groups": chosen["groups"] or [],
            "topics": chosen["topics"] or [],
            "all_topics": chosen["all_topics"],
            "strategies": _strategies(chosen),
            "allow_skip": chosen["allow_skip"],
            "reason": chosen["reason"] or "",
            "requested_by": _person(context),
        }
        return _asked(chosen, steps.validate(asked))


def validate_rollback(context: Context) -> Asked:
    """The request that takes an earlier plan back: start offsets only. Fails when it changed nothing, or was taken back
    already."""
    from acktrail.group_changes import steps

    with advised():
        chosen = context["params"]
        _check_requester(context)
        if not chosen["plan_id"]:
            raise InputError("no plan is named", hint="fill in plan_id: acktrail reset list shows them")
        earlier = steps.load_plan(_tables(chosen["tables_uri"]), chosen["plan_id"])
        topics = tuple(chosen["topics"] or ())
        steps.check_undo(_tables(chosen["tables_uri"]), earlier, topics=topics)
        params = steps.undo_params(
            earlier,
            topics=topics,
            reason=chosen["reason"] or "",
            requested_by=_person(context),
            allow_moved_on=chosen["allow_moved_on"],
        )
        return _asked(chosen, steps.validate({**params, "allow_skip": chosen["allow_skip"]}))


def preflight(asked: Asked) -> None:
    """Fails on what forbids a reset whatever its plan; members may still go."""
    from acktrail.group_changes import steps

    with advised():
        found = steps.preflight(kafka_config(asked["kafka_conn_id"]), asked["request"])
    told = [notice for notice in found["notices"] if notice["rule"] != _WAITED_FOR]
    refusals = [_said(notice) for notice in told if notice["severity"] == "refusal"]
    for notice in told:
        _log.info("%s", _said(notice))
    if refusals and not asked["partial"]:
        raise AirflowFailException("; ".join(refusals))


def wait_until_empty(asked: Asked) -> None:
    """Wait for the last member to go, as long as the form says."""
    from acktrail.group_changes import steps

    kafka, wait_s = kafka_config(asked["kafka_conn_id"]), float(asked["wait_for_empty_s"])
    with advised():
        steps.groups_empty(kafka, asked["request"], timeout_s=wait_s)


def plan(asked: Asked) -> Planned:
    """Take the snapshot of state and offsets, make the plan from it, store both."""
    from acktrail.group_changes import steps
    from acktrail_dags.plan_text import plan_text

    with advised():
        kafka, tables = kafka_config(asked["kafka_conn_id"]), _tables(asked["tables_uri"])
        found = steps.snapshot(kafka, asked["request"], tables=tables)
        made = steps.plan(asked["request"], found, kafka=kafka, created_by=asked["request"]["requested_by"] or None)
        steps.store_plan(tables, made)
        approval = steps.approval_needed(made)
    preview = plan_text(made, approval=approval)
    _log.info("%s", preview)
    return Planned(
        kafka_conn_id=asked["kafka_conn_id"],
        tables_uri=asked["tables_uri"],
        plan_id=made["plan_id"],
        plan_hash=made["plan_hash"],
        preview=preview,
        refusals=[_said(notice) for notice in made["notices"] if notice["severity"] == "refusal"],
        partial=asked["partial"],
        watch_s=asked["watch_s"],
    )


def check_plan(planned: Planned) -> None:
    """Suite ``reset_plan``; then fails if the plan has refusals and is not to be carried out in part. Refusals come
    first in what a person reads: a plan that is refused as a whole has nothing to check."""
    from acktrail_expectations.reset_gate import validate_plan

    refused = "; ".join(planned["refusals"])
    try:
        with advised():
            validate_plan(_tables(planned["tables_uri"]), planned["plan_id"])
    except AirflowFailException as error:
        raise AirflowFailException(f"{refused}; {error}" if refused else str(error)) from error
    if refused and not planned["partial"]:
        raise AirflowFailException(refused)


def note_decision(planned: Planned, response: Mapping[str, Any] | None) -> str:
    """Note who approved or rejected the plan, or that nobody answered in time; the name of whoever approved. Skipped
    where nobody was asked. Fails when the plan is closed, or may not be approved by this person."""
    from acktrail.group_changes import steps

    if response is None:
        raise AirflowSkipException("nobody was asked")
    approved, person = response.get("chosen_options") == ["Approve"], _responder(response)
    expired = not approved and not response.get("responded_by_user")
    with advised():
        tables = _tables(planned["tables_uri"])
        standing = steps.note_decision(
            tables,
            _stored(planned),
            approved=approved,
            actor=person,
            note="nobody answered" if expired else "",
            expired=expired,
        )
    _log.info("plan %s: %s by %s", planned["plan_id"], standing, person)
    return person


def recheck(planned: Planned) -> int:
    """Fails if anything moved since the plan was made (topics, partition counts, members, state), or if the plan is
    closed. How many share partitions would be sent now."""
    from acktrail.group_changes import steps

    with advised():
        rows = steps.would_send(
            kafka_config(planned["kafka_conn_id"]),
            _stored(planned),
            partial=planned["partial"],
            tables=_tables(planned["tables_uri"]),
            is_approved=True,
        )
        return len(rows)


def execute(planned: Planned, actor: str) -> dict[str, Any]:
    """Carry the plan out; what the brokers said of every share partition. Tried once: an unknown outcome is verified
    before anything else."""
    from acktrail.group_changes import steps

    kafka, tables = kafka_config(planned["kafka_conn_id"]), _tables(planned["tables_uri"])
    with advised():
        return steps.execute(kafka, tables, _stored(planned), partial=planned["partial"], actor=actor)


def verify(planned: Planned) -> list[dict[str, Any]]:
    """Settle the attempt in the state topic and by what the brokers describe; skipped where nothing was attempted."""
    from acktrail.group_changes import reports, steps

    kafka, tables = kafka_config(planned["kafka_conn_id"]), _tables(planned["tables_uri"])
    with advised():
        if not reports.progress(tables, planned["plan_id"])["groups"]:
            raise AirflowSkipException("nothing was sent")
        try:
            return steps.verify(kafka, tables, _stored(planned), watch_s=float(planned["watch_s"]))
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, RetryableError):
                raise error.__cause__ from error  # nothing is settled: Airflow looks again
            raise


def check_result(planned: Planned) -> None:
    """Suite ``reset_result``: every share partition is known to stand at its target."""
    from acktrail_expectations.reset_gate import validate_result

    with advised():
        validate_result(_tables(planned["tables_uri"]), planned["plan_id"])


def _strategies(chosen: Mapping[str, Any]) -> dict[str, str | None]:
    """The one strategy with its value; a value that belongs to another one is refused, not passed over."""
    strategy = chosen["strategy"]
    if strategy is None:
        return {}
    needed = _VALUE_OF.get(strategy)
    stray = [field for field in set(_VALUE_OF.values()) if field != needed and chosen[field] is not None]
    if stray:
        raise InputError(f"{strategy} does not take {min(stray)}", hint="leave that field empty")
    if needed is None:
        return {strategy: None}
    if chosen[needed] is None:
        raise InputError(f"{strategy} needs {needed}", hint="fill in that field")
    return {strategy: str(chosen[needed])}


def _asked(chosen: Mapping[str, Any], request: dict[str, Any]) -> Asked:
    return Asked(
        kafka_conn_id=chosen["kafka_conn_id"] or DEFAULT_KAFKA_CONN_ID,
        tables_uri=_tables(chosen["tables_uri"]).uri,
        request=request,
        partial=chosen["partial"],
        wait_for_empty_s=chosen["wait_for_empty_s"],
        watch_s=chosen["watch_s"],
    )


def _tables(uri: str | None) -> TablesConfig:
    try:
        return TablesConfig.from_environment(uri)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint="set the parameter tables_uri or ACKTRAIL_TABLES") from error


def _stored(planned: Planned) -> dict[str, Any]:
    """The plan from the tables. Another hash than the one that was shown to people is refused."""
    from acktrail.group_changes import steps

    found = steps.load_plan(_tables(planned["tables_uri"]), planned["plan_id"])
    if found["plan_hash"] != planned["plan_hash"]:
        raise UnknownName("plan with the hash that was shown", planned["plan_id"])
    return found


def _person(context: Context) -> str:
    return getattr(context["dag_run"], "triggering_user_name", None) or ""


def _check_requester(context: Context) -> None:
    """Where a second person must approve, the first one must be known."""
    is_needed = approval_rule() is ApprovalRule.SECOND_PERSON and not context["params"]["dry_run"]
    if is_needed and not _person(context):
        hint = "trigger it from Airflow's page or interface, signed in"
        raise InputError("Airflow does not know who triggered this run, and a second person must approve", hint=hint)


def _responder(answer: Mapping[str, Any]) -> str:
    user = answer.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "nobody")


def _said(notice: Mapping[str, Any]) -> str:
    about = [str(notice[part]) for part in ("group_id", "topic", "partition") if notice.get(part) is not None]
    where = f" ({' '.join(about)})" if about else ""
    return f"{notice['rule']}{where}: {notice['text']}"
