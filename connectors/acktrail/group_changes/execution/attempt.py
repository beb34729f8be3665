"""One attempt to carry out a plan, as its audit rows have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.broker.changes import ChangeResult, ErrorScope, Outcome
from acktrail.group_changes.audit.audit_chain import AuditEntry, AuditRow, Event
from acktrail.group_changes.lifecycle.change_status import PARTIAL
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan

__all__ = ["Sent", "SentPart", "after_call", "before_call", "call_outcome", "sent_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPart:
    """One share partition in a request, and what the broker said of it. No word at all: `outcome` UNKNOWN."""

    topic: str
    partition: int
    target_offset: int
    outcome: Outcome
    error_code: int | None = None
    error: str | None = None
    error_scope: ErrorScope | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The request for one group. `ends` are the state partitions' ends right before it was sent, at `sent_at_ms`."""

    group_id: str
    attempt: int
    sent_at_ms: int
    state_topic_id: str | None
    ends: Mapping[int, int]
    parts: tuple[SentPart, ...]


def before_call(
    plan: ResetPlan,
    attempt: int,
    group_id: str,
    rows: Sequence[PartitionPlan],
    ends: Mapping[int, int],
    now_ms: int,
    *,
    is_partial: bool = False,
) -> AuditEntry:
    """The row before a request: exactly what is asked for, and from where on its effect can be seen. `is_partial`: the
    plan has more of the group, which is left out."""
    return AuditEntry(
        kind=plan.kind.value,
        event=Event.BEFORE_CALL,
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        attempt=attempt,
        group_id=group_id,
        outcome=PARTIAL if is_partial else None,
        detail={
            "request": "AlterShareGroupOffsets",
            "sent_at_ms": now_ms,
            "state_topic_id": plan.cluster.state_topic_id,
            "ends": {str(partition): end for partition, end in sorted(ends.items())},
            "parts": [[row.topic, row.partition, row.target_offset] for row in rows],
        },
    )


def after_call(plan: ResetPlan, attempt: int, group_id: str, results: Sequence[ChangeResult]) -> AuditEntry:
    """The row after it: what the broker said, failures one by one."""
    return AuditEntry(
        kind=plan.kind.value,
        event=Event.AFTER_CALL,
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        attempt=attempt,
        group_id=group_id,
        outcome=call_outcome(results),
        detail={
            "done": sum(result.outcome is Outcome.DONE for result in results),
            "failed": [
                [r.topic, r.partition, r.outcome, r.error_code, r.error_scope, r.error, r.advice]
                for r in results
                if r.outcome is not Outcome.DONE
            ],
        },
    )


def call_outcome(results: Iterable[ChangeResult]) -> str:
    """One word for a whole request: ``done``, ``partly``, ``refused``, ``unknown``."""
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED}:
        return "unknown"
    if outcomes == {Outcome.REFUSED}:
        return "refused"
    return "partly" if Outcome.REFUSED in outcomes else "done"


def sent_of(rows: Sequence[AuditRow]) -> Sent | None:
    """The request that the audit rows of one group in one attempt tell of; None: none was sent."""
    before = next((row for row in rows if row.event == Event.BEFORE_CALL), None)
    if before is None:
        return None
    asked = json.loads(before.detail)
    after = next((json.loads(row.detail) for row in rows if row.event == Event.AFTER_CALL), None)
    failed = {(row[0], row[1]): row for row in after["failed"]} if after is not None else {}
    return Sent(
        group_id=before.group_id or "",
        attempt=before.attempt,
        sent_at_ms=asked["sent_at_ms"],
        state_topic_id=asked["state_topic_id"],
        ends={int(partition): end for partition, end in asked["ends"].items()},
        parts=tuple(
            _part(part, failed.get((part[0], part[1])), has_answer=after is not None) for part in asked["parts"]
        ),
    )


def _part(asked: Sequence[Any], failed: Sequence[Any] | None, *, has_answer: bool) -> SentPart:
    topic, partition, target = asked
    if failed is None:
        outcome = Outcome.DONE if has_answer else Outcome.UNKNOWN
        return SentPart(topic=topic, partition=partition, target_offset=target, outcome=outcome)
    return SentPart(
        topic=topic,
        partition=partition,
        target_offset=target,
        outcome=Outcome(failed[2]),
        error_code=failed[3],
        error_scope=None if failed[4] is None else ErrorScope(failed[4]),
        error=failed[5],
        advice=failed[6],
    )
