"""Deletes groups and what they have of topics, and changes configurations: gathered, carried out, verified."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import ChangeResult, ConfigsChange, Outcome
from acktrail.broker.client.backoff import Backoff
from acktrail.broker.client.error_codes import GROUP_ID_NOT_FOUND
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ChangeInProgress, ConfigurationError, PlanStale
from acktrail.group_changes.audit.audit_chain import AuditEntry, Event
from acktrail.group_changes.audit.journal import Journal, here
from acktrail.group_changes.collection.collect import describe_groups
from acktrail.group_changes.execution.attempt import call_outcome
from acktrail.group_changes.execution.departure import Departure
from acktrail.group_changes.lifecycle.change_status import Standing
from acktrail.group_changes.other_plan import (
    ConfigStep,
    KeptOffset,
    OtherKind,
    OtherPart,
    OtherPlan,
    build_other_plan,
    config_notices,
    right_needed,
)
from acktrail.group_changes.planning.refusals import refusal_error

__all__ = ["carry_out", "check_preview", "gather_configs", "gather_deletion", "other_plan_row", "settle_other"]

_LEASE_MS: Final = 120_000
_PATIENCE_S: Final = 5.0


def gather_deletion(kafka: KafkaConfig, groups: Sequence[str], topics: Sequence[str] = (), **about: Any) -> OtherPlan:
    """The plan to delete groups, or (`topics`) what they have of topics. `about`: see `build_other_plan`.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster cannot be asked.
    """
    kind = OtherKind.DELETE_OFFSETS if topics else OtherKind.DELETE_GROUPS
    with ShareGroupAdmin(kafka) as admin:
        ids = tuple(sorted(set(groups)))
        facts, _ = describe_groups(admin, ids)
        parts = [
            OtherPart(
                group_id=answer.group_id,
                topics=tuple(dict.fromkeys(topics)),
                offsets=tuple(
                    KeptOffset(topic=o.topic, partition=o.partition, start_offset=o.start_offset, lag=o.lag)
                    for o in answer.offsets
                    if not topics or o.topic in topics
                ),
            )
            for answer in admin.describe_group_offsets(ids)
        ]
        return build_other_plan(
            kind, parts, facts, cluster_id=admin.cluster_id, release=admin.capabilities().release, **about
        )


def gather_configs(
    kafka: KafkaConfig, groups: Sequence[str], wanted: Mapping[str, str | None], **about: Any
) -> OtherPlan:
    """The plan to set configurations of groups (None: unset).

    Raises:
        ConfigurationError: a group's configuration may not be read.
        Unreachable, RetryableError: the cluster cannot be asked.
    """
    with ShareGroupAdmin(kafka) as admin:
        ids = tuple(sorted(set(groups)))
        facts, _ = describe_groups(admin, ids)
        parts, notices = [], []
        for answer in admin.group_configs(ids):
            if answer.configs is None:
                raise ConfigurationError(
                    f"the configuration of group {answer.group_id!r} cannot be read: {answer.error}",
                    hint="grant DESCRIBE_CONFIGS on the group",
                )
            notices += list(config_notices(answer.group_id, wanted, answer.configs))
            steps = tuple(
                ConfigStep(name=name, before=answer.configs.get(name), is_own=name in answer.own, after=value)
                for name, value in sorted(wanted.items())
            )
            parts.append(OtherPart(group_id=answer.group_id, configs=steps))
        return build_other_plan(
            OtherKind.ALTER_CONFIGS,
            parts,
            facts,
            cluster_id=admin.cluster_id,
            release=admin.capabilities().release,
            more=notices,
            **about,
        )


def other_plan_row(plan: OtherPlan) -> dict[str, Any]:
    """The row of ``reset_plans``."""
    from acktrail.group_changes.json_values import to_plain

    return {
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "kind": plan.kind.value,
        "created_at": dt.datetime.fromtimestamp(plan.created_at_ms / 1000, dt.UTC),
        "created_by": plan.created_by,
        "requested_by": plan.requested_by or None,
        "reason": plan.reason or None,
        "release": plan.release,
        "strategy": plan.kind.value.replace("_", "-"),
        "group_ids": [part.group_id for part in plan.parts],
        "partitions": sum(len(part.offsets) for part in plan.parts),
        "refusals": len(plan.refusals),
        "plan": json.dumps(to_plain(plan), indent=1, ensure_ascii=True) + "\n",
    }


def carry_out(
    kafka: KafkaConfig,
    journal: Journal,
    plan: OtherPlan,
    again: Callable[[], OtherPlan],
    *,
    check: Callable[[], object] | None = None,
    departure: Departure | None = None,
) -> list[ChangeResult]:
    """Send what `plan` says, unless `again`, the same plan made now, has another preview. Then verify and give the
    lease back. One result for each group or topic. `check` raises what forbids the attempt, within the same commit as
    the lease; `departure` learns when the first request leaves.

    Raises:
        ChangeRefused, PlanStale: nothing was sent. ChangeInProgress: somebody else is at a group.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing was sent.
        OutcomeUnknown: a request left, and then anything went wrong: verify.
    """
    _check_refusals(plan)
    _, pid = here()
    lease = {"expires_at_ms": journal.now_ms + _LEASE_MS, "pid": pid}
    journal.take_lease([_entry(plan, part, Event.LEASE_TAKEN, detail=lease) for part in plan.parts], check=check)
    results: list[ChangeResult] = []
    with departure or Departure(plan.plan_id) as sending:
        try:
            check_preview(plan, again)
            with ShareGroupAdmin(kafka) as admin:
                for part in plan.parts:
                    results += _tell(admin, journal, plan, part, sending)
        except BaseException:
            if not sending.has_left:
                with suppress(AcktrailError):
                    settle_other(kafka, journal, plan)
            raise
        settle_other(kafka, journal, plan)
        sending.settled()
    return results


def check_preview(plan: OtherPlan, again: Callable[[], OtherPlan]) -> None:
    """Pass when no rule forbids `plan`, and `again`, the same plan made now, has the same preview.

    Raises:
        ChangeRefused, PlanStale: the rule, or that something moved.
    """
    _check_refusals(plan)
    if again().preview_hash != plan.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")


def _check_refusals(plan: OtherPlan) -> None:
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, operation=right_needed(plan.kind))


def settle_other(kafka: KafkaConfig, journal: Journal, plan: OtherPlan) -> dict[str, str]:
    """Look at every group of `plan` that is not settled, note what is found, and give its lease back: outcome by group.

    Raises:
        ChangeInProgress: another living process is at it.
        RetryableError, ConfigurationError: the cluster or the tables cannot be asked; nothing is settled.
    """
    unsettled = [
        found
        for found in journal.standings({"plan_id": plan.plan_id})
        if found.lease is not None or found.standing in _OPEN
    ]
    for found in unsettled:
        lease = found.lease
        is_open = found.newest.event != Event.AFTER_CALL
        if is_open and lease is not None and lease.is_held(journal.now_ms) and (lease.host, lease.pid) != here():
            hint = f"process {lease.pid} on {lease.host} is at it"
            raise ChangeInProgress(found.group_id, plan_id=plan.plan_id, hint=hint)
    outcomes = _looked_up(kafka, plan, [found.group_id for found in unsettled if found.standing in _OPEN])
    parts = {part.group_id: part for part in plan.parts}
    entries: list[AuditEntry] = []
    for found in unsettled:
        part = parts[found.group_id]
        if part.group_id in outcomes:
            entries.append(_entry(plan, part, Event.VERIFIED, outcome=outcomes[part.group_id]))
        elif found.standing is Standing.STARTED:
            entries.append(_entry(plan, part, Event.AFTER_CALL, outcome="not_sent"))
        entries.append(_entry(plan, part, Event.LEASE_RELEASED))
    if entries:
        journal.note(entries)
    return outcomes


_OPEN: Final = frozenset({Standing.UNKNOWN, Standing.UNVERIFIED})


def _looked_up(kafka: KafkaConfig, plan: OtherPlan, group_ids: Collection[str]) -> dict[str, str]:
    """`done` or `not_done` by group, as the cluster shows it."""
    if not group_ids:
        return {}
    with ShareGroupAdmin(kafka) as admin:
        return {
            part.group_id: "done" if _shows(admin, plan.kind, part) else "not_done"
            for part in plan.parts
            if part.group_id in group_ids
        }


def _tell(
    admin: ShareGroupAdmin, journal: Journal, plan: OtherPlan, part: OtherPart, sending: Departure
) -> tuple[ChangeResult, ...]:
    asked: dict[str, object] = {"request": plan.kind.value, "topics": part.topics, "configs": _values(part)}
    journal.note([_entry(plan, part, Event.BEFORE_CALL, detail=asked)])
    sending.left()
    try:
        results = _send(admin, plan.kind, part)
    except AcktrailError as error:
        results = (_not_sent(part, error),)
    if call_outcome(results) == "refused":
        sending.stayed()
    failed = [
        [r.topic, r.outcome.value, r.error_code, r.error, r.advice] for r in results if r.outcome is not Outcome.DONE
    ]
    detail = {"failed": failed}
    journal.note([_entry(plan, part, Event.AFTER_CALL, outcome=call_outcome(results), detail=detail)])
    return results


def _send(admin: ShareGroupAdmin, kind: OtherKind, part: OtherPart) -> tuple[ChangeResult, ...]:
    match kind:
        case OtherKind.DELETE_GROUPS:
            return (admin.delete_group(part.group_id),)
        case OtherKind.DELETE_OFFSETS:
            return admin.delete_offsets(part.group_id, part.topics)
        case OtherKind.ALTER_CONFIGS:
            change = ConfigsChange(group_id=part.group_id, configs=tuple(_values(part).items()))
            return (admin.alter_group_configs(change),)


def _values(part: OtherPart) -> dict[str, str | None]:
    return {step.name: step.after for step in part.configs}


def _shows(admin: ShareGroupAdmin, kind: OtherKind, part: OtherPart) -> bool:
    """Whether the change shows, now or within seconds: brokers learn of it one after the other."""
    patience = Backoff(_PATIENCE_S)
    while not _is_done(admin, kind, part):
        if not patience.wait():
            return False
    return True


def _is_done(admin: ShareGroupAdmin, kind: OtherKind, part: OtherPart) -> bool:
    """Whether the cluster is as the change would have it."""
    if kind is OtherKind.DELETE_GROUPS:
        (group,) = admin.describe_groups([part.group_id])
        return group.error_code == GROUP_ID_NOT_FOUND
    if kind is OtherKind.DELETE_OFFSETS:
        (answer,) = admin.describe_group_offsets([part.group_id])
        return not {offset.topic for offset in answer.offsets} & set(part.topics)
    (configs,) = admin.group_configs([part.group_id])
    return all(
        step.name not in configs.own
        if step.after is None
        else step.name in configs.own and (configs.configs or {}).get(step.name) == step.after
        for step in part.configs
    )


def _not_sent(part: OtherPart, error: AcktrailError) -> ChangeResult:
    return ChangeResult(
        group_id=part.group_id,
        outcome=Outcome.REFUSED,
        error_code=None,
        error=f"not sent: {error.message}",
        advice=error.hint,
    )


def _entry(
    plan: OtherPlan,
    part: OtherPart,
    event: Event,
    *,
    outcome: str | None = None,
    detail: Mapping[str, object] | None = None,
) -> AuditEntry:
    return AuditEntry(
        kind=plan.kind.value,
        event=event,
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        attempt=1,
        group_id=part.group_id,
        outcome=outcome,
        detail=detail or {},
    )
