"""The request of a reset for one group, as its audit rows have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.broker.changes import ChangeResult, ErrorScope, Outcome
from acktrail.group_changes.audit.audit_chain import AuditRow, Event
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.model.share_partition import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPartition:
    """One share partition of a request: what the plan found there, what was asked, what the broker said (no answer:
    `outcome` UNKNOWN). `ends` are the state partitions' ends right before it was sent.

    For a look that is not the first: what others asked `later` (the ends then, and their target), and the record (state
    partition, offset) by which it was found `overwritten_at`.
    """

    row: PartitionPlan
    group_epoch: int | None
    target_offset: int
    sent_at_ms: int
    ends: Mapping[int, int]
    outcome: Outcome
    error_code: int | None = None
    error: str | None = None
    error_scope: ErrorScope | None = None
    advice: str = ""
    later: Sequence[tuple[Mapping[int, int], int]] = ()
    overwritten_at: tuple[int, int] | None = None

    @property
    def key(self) -> SharePartition:
        return self.row.share_partition


def request_detail(
    rows: Sequence[PartitionPlan], state_topic_id: str | None, ends: Mapping[int, int], now_ms: int
) -> dict[str, Any]:
    """The detail of the row before a request: what it asks for, and `ends`, after which its effect can be seen."""
    return {
        "request": "AlterShareGroupOffsets",
        "sent_at_ms": now_ms,
        "state_topic_id": state_topic_id,
        "ends": {str(partition): end for partition, end in sorted(ends.items())},
        "parts": [[row.topic, row.partition, row.target_offset] for row in rows],
    }


def answer_detail(results: Sequence[ChangeResult]) -> dict[str, Any]:
    """The detail of the row after it: the broker's answer, failures one by one."""
    return {
        "done": sum(result.outcome is Outcome.DONE for result in results),
        "failed": [
            [r.topic, r.partition, r.outcome, r.error_code, r.error_scope, r.error, r.advice]
            for r in results
            if r.outcome is not Outcome.DONE
        ],
    }


def asked_in(detail: Mapping[str, Any]) -> tuple[dict[int, int], list[tuple[str, int, int]]]:
    """The ends in a `request_detail`, and what it asks for: topic, partition, target; nothing, where it is no reset."""
    ends = {int(partition): end for partition, end in detail.get("ends", {}).items()}
    return ends, [(topic, partition, target) for topic, partition, target in detail.get("parts", ())]


def sent_partitions(plan: ResetPlan, rows: Iterable[AuditRow]) -> list[SentPartition]:
    """Every share partition that was sent by `rows`, those of one attempt at each group of `plan`."""
    requests: dict[str, dict[str, Any]] = {}
    answers: dict[str, dict[str, Any]] = {}
    for row in rows:
        kept = {Event.BEFORE_CALL: requests, Event.AFTER_CALL: answers}.get(Event(row.event))
        if kept is not None:
            kept.setdefault(row.group_id or "", json.loads(row.detail))
    planned = {row.key: row for row in plan.partitions}
    epochs = {group.group_id: group.group_epoch for group in plan.groups}
    found = []
    for group_id, request in requests.items():
        answer = answers.get(group_id)
        failed = {(topic, part): failure for topic, part, *failure in answer["failed"]} if answer is not None else {}
        no_failure = (Outcome.UNKNOWN if answer is None else Outcome.DONE, None, None, None, "")
        ends, parts = asked_in(request)
        for topic, part, target in parts:
            outcome, error_code, scope, error, advice = failed.get((topic, part), no_failure)
            one = SentPartition(
                row=planned[group_id, topic, part],
                group_epoch=epochs.get(group_id),
                target_offset=target,
                sent_at_ms=request["sent_at_ms"],
                ends=ends,
                outcome=Outcome(outcome),
                error_code=error_code,
                error=error,
                error_scope=None if scope is None else ErrorScope(scope),
                advice=advice,
            )
            found.append(one)
    return found
