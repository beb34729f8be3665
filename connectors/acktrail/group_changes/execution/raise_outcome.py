"""What to raise for what became of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acktrail.broker.changes import ChangeResult, ErrorScope, Outcome, raise_unless_done
from acktrail.errors import OutcomeUnknown, PartlyDone, RetryableError
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, Status

if TYPE_CHECKING:
    from acktrail.group_changes.api import ChangeOutcome
    from acktrail.group_changes.execution.execute_reset import Execution

_UNCLEAR = frozenset({Status.UNKNOWN, Status.NOT_PERSISTED, Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK})


def raise_unless_ok(plan_id: str, outcomes: Sequence[Mapping[str, Any]], execution: Execution | None) -> None:
    """Pass when every share partition is at its target: none was left out, none failed, no group was left unsent.
    `outcomes` are JSON rows, as `api.outcomes` gives them.

    Raises:
        OutcomeUnknown: one is not where the broker's answer would have it, or the outcome is not known.
        PartlyDone: some are at their targets and others were left out, refused or not sent.
        NotAuthorized, UnknownName, GroupNotEmpty, RetryableError ...: all were refused; the first refusal says why.
    """
    known = {(row["group_id"], row["topic"], row["partition"]) for row in outcomes}
    refused = () if execution is None else execution.refused
    left_out = [one for one in refused if (one.group_id, one.topic, one.partition) not in known]
    rows = [*outcomes, *({**one.outcome(Status.LEFT_OUT), "error_code": None} for one in left_out)]
    bad = [row for row in rows if not Status(row["status"]).is_ok]
    not_sent = execution.not_sent if execution is not None else ()
    if not bad and not not_sent:
        return
    unclear = [row for row in bad if Status(row["status"]) in _UNCLEAR]
    tried = [row for row in bad if row["status"] != Status.LEFT_OUT]
    first = next(iter([*unclear, *tried, *bad]), None)
    text = f"{len(bad)} of {len(rows)} share partitions are not at their targets" + _first(first)
    if unclear:
        hint = f"see acktrail reset show {plan_id}; acktrail reset verify {plan_id} looks again"
        raise OutcomeUnknown(text, hint=hint, data={"plan": plan_id})
    if len(bad) < len(rows):
        hint = f"acktrail reset show {plan_id} lists them; the same plan may be applied again: what is done is left out"
        raise PartlyDone(text, hint=hint)
    if not bad:
        raise PartlyDone(f"group {not_sent[0]!r} was not sent", hint="the same plan may be applied again")
    undone = [row for row in tried if row["status"] == Status.NOT_ATTEMPTED or row["error_code"] is None]
    if undone or not tried:
        raise RetryableError(
            text, hint="nothing was changed there, verification says; the same plan may be applied again"
        )
    raise_unless_done([_result(row) for row in tried], operation="READ")


def raise_unless_changed(change: ChangeOutcome) -> None:
    """Pass when everything was done and shows.

    Raises:
        OutcomeUnknown: the outcome is not known, or the broker answered done and it does not show.
        PartlyDone, NotAuthorized, GroupNotEmpty, UnknownName ...: the broker's answer.
    """
    answered = {result.group_id for result in change.results if result.outcome is Outcome.DONE}
    hidden = [group for group in answered if change.outcomes.get(group) == ChangeStatus.FAILED]
    if hidden:
        text = f"the broker said that group {min(hidden)!r} was changed, and it does not show"
        hint = f"acktrail reset verify {change.plan_id} looks again"
        raise OutcomeUnknown(text, hint=hint, data={"plan": change.plan_id})
    try:
        raise_unless_done(change.results, operation="DELETE")
    except OutcomeUnknown as error:
        hint = f"acktrail reset show {change.plan_id} lists what was found; {error.hint}".removesuffix("; ")
        raise OutcomeUnknown(error.message, hint=hint, data={**error.data, "plan": change.plan_id}) from error


def _first(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    why = f" ({row['error']})" if row["error"] else ""
    return f", first {row['topic']}:{row['partition']} of group {row['group_id']!r}: {row['status']}{why}"


def _result(row: Mapping[str, Any]) -> ChangeResult:
    """A refusal as the broker gave it."""
    return ChangeResult(
        group_id=row["group_id"],
        outcome=Outcome.REFUSED,
        topic=row["topic"],
        partition=row["partition"],
        topic_id=row["topic_id"],
        error_code=row["error_code"],
        error=row["error"],
        error_scope=None if row["error_scope"] is None else ErrorScope(row["error_scope"]),
        advice=row["advice"],
    )
