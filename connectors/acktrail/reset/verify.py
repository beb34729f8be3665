"""Looks at what an attempt did: in the state topic itself, by the broker's description, and for a while longer.

Nothing is changed. What is found is noted and the lease is given back. This also settles an attempt whose process was
killed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import Outcome
from acktrail.broker.patience import Patience
from acktrail.broker.state_reader import StateReader
from acktrail.broker.state_topic import StateTopic
from acktrail.config import KafkaConfig
from acktrail.errors import ChangeInProgress
from acktrail.model.share_partition import SharePartition
from acktrail.reset.attempt import sent_of
from acktrail.reset.audit import AuditEntry, Event
from acktrail.reset.facts import PartitionState
from acktrail.reset.journal import Journal, here
from acktrail.reset.look import Asked, Look, asked_of
from acktrail.reset.plan import ResetPlan
from acktrail.reset.standing import GroupStanding, Standing
from acktrail.reset.states import read_states
from acktrail.reset.verdict import Finding, Status

__all__ = ["Verified", "verify"]

WAIT_S: Final = 30.0
"""How long a record may take to show, and how long a request may be on its way after its sender was killed."""
WATCH_S: Final = 5.0

_UNSETTLED: Final = frozenset({Standing.UNKNOWN, Standing.UNVERIFIED, Standing.STARTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What became of one share partition. Epochs and start offsets before are the plan's, after the state topic's."""

    group_id: str
    topic: str
    topic_id: str | None
    partition: int
    target_offset: int
    status: Status
    error_code: int | None
    error: str | None
    error_scope: str | None
    advice: str
    start_offset_before: int | None
    start_offset_after: int | None
    described_start_offset: int | None
    snapshot_epoch_before: int | None
    snapshot_epoch_after: int | None
    state_epoch_before: int | None
    state_epoch_after: int | None
    evidence_state_partition: int | None
    evidence_offset: int | None


def verify(
    kafka: KafkaConfig, journal: Journal, plan: ResetPlan, *, wait_s: float = WAIT_S, watch_s: float = WATCH_S
) -> tuple[Verified, ...]:
    """Settle every group of the newest attempt at `plan` that is not settled; nothing to settle gives nothing.

    `wait_s`: how long to wait for a record, and (after the request was sent) for one of a request without an answer.
    `watch_s`: how long to watch afterwards that nothing overwrites the start offsets of a group that stays empty.

    Raises:
        ChangeInProgress: another living process is at it.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing is settled.
    """
    unsettled = _unsettled(journal, plan)
    rows = journal.audit({"plan_id": plan.plan_id}) if unsettled else []
    newest = {standing.group_id: standing.attempt for standing in unsettled}
    requests = [
        sent
        for group, attempt in newest.items()
        if (sent := sent_of([row for row in rows if row.group_id == group and row.attempt == attempt])) is not None
    ]
    asked = asked_of(plan, requests)
    found = _Verification(kafka, journal, plan, asked, wait_s, watch_s).run() if asked else ()
    if found:
        journal.write_executions([_row(one, plan.plan_id, newest[one.group_id], journal) for one in found])
    journal.note(_closing(plan, unsettled, found)) if unsettled else None
    return found


class _Verification:
    def __init__(
        self,
        kafka: KafkaConfig,
        journal: Journal,
        plan: ResetPlan,
        asked: Sequence[Asked],
        wait_s: float,
        watch_s: float,
    ) -> None:
        self._kafka = kafka
        self._journal = journal
        self._plan = plan
        self._asked = tuple(asked)
        self._wait_s = wait_s
        self._watch_s = watch_s

    def run(self) -> tuple[Verified, ...]:
        with ShareGroupAdmin(self._kafka) as admin:
            if self._plan.cluster.state_reason is not None:
                return self._by_description(admin)
            topic = StateTopic(admin)
            with StateReader(self._kafka, topic) as reader:
                look = Look(reader, self._asked)
                findings = self._settled(admin, look)
                described = self._described(admin, findings)
                findings = self._watched(admin, look, findings)
            states = read_states(self._kafka, admin, {one.key for one in self._asked}).states
        return tuple(
            _verified(one, finding, states.get(one.key), said)
            for one, finding, said in zip(self._asked, findings, described, strict=True)
        )

    def _settled(self, admin: ShareGroupAdmin, look: Look) -> list[Finding]:
        """Read until each has shown, or the time is over in which it can."""
        patience = Patience(self._wait_s)
        while True:
            look.read()
            findings = self._judged(admin, look)
            pending = [o for o, f in zip(self._asked, findings, strict=True) if self._may_still_show(o, f)]
            if not pending or not patience.wait():
                return findings

    def _may_still_show(self, one: Asked, finding: Finding) -> bool:
        if finding.status is Status.NOT_PERSISTED:
            return True
        is_open = finding.status is Status.NOT_ATTEMPTED and one.part.outcome is Outcome.UNKNOWN
        return is_open and self._journal.now_ms < one.sent.sent_at_ms + self._wait_s * 1000

    def _judged(self, admin: ShareGroupAdmin, look: Look) -> list[Finding]:
        """The findings, with what a group did after the reset told from what overwrote it."""
        states: Mapping[SharePartition, PartitionState | None] = {}
        if not look.is_complete:
            states = read_states(self._kafka, admin, {one.key for one in self._asked}).states
        findings = look.findings(states)
        suspects = sorted(
            {o.sent.group_id for o, f in zip(self._asked, findings, strict=True) if f.status is _OVERWRITTEN}
        )
        if not suspects:
            return findings
        groups = {group.group_id: group for group in admin.describe_groups(suspects)}
        return [
            replace(finding, status=Status.OK, moved_on=True)
            if finding.status is _OVERWRITTEN
            and finding.reset_epoch is not None
            and (groups[one.sent.group_id].members or groups[one.sent.group_id].group_epoch != finding.reset_epoch)
            else finding
            for one, finding in zip(self._asked, findings, strict=True)
        ]

    def _described(self, admin: ShareGroupAdmin, findings: Sequence[Finding]) -> list[int | None]:
        """The start offsets that the broker describes; asked again while those that are done are not there yet."""
        patience = Patience(self._wait_s)
        while True:
            found = _start_offsets(admin, self._asked)
            late = [
                one
                for one, finding, said in zip(self._asked, findings, found, strict=True)
                if finding.status.is_ok and said is None
            ]
            if not late or not patience.wait():
                return found

    def _watched(self, admin: ShareGroupAdmin, look: Look, findings: list[Finding]) -> list[Finding]:
        patience = Patience(self._watch_s)
        while any(finding.status.is_ok for finding in findings) and patience.wait():
            look.read()
            findings = self._judged(admin, look)
        return findings

    def _by_description(self, admin: ShareGroupAdmin) -> tuple[Verified, ...]:
        """Without the state topic: the broker's word alone."""
        patience = Patience(self._wait_s)
        while True:
            described = _start_offsets(admin, self._asked)
            late = [
                one
                for one, said in zip(self._asked, described, strict=True)
                if said != one.part.target_offset and one.part.outcome is not Outcome.REFUSED
            ]
            if not late or not patience.wait():
                break
        return tuple(
            _verified(one, Finding(status=_described_status(one, said)), None, said)
            for one, said in zip(self._asked, described, strict=True)
        )


_OVERWRITTEN: Final = Status.OVERWRITTEN_AFTER_RESET


def _described_status(one: Asked, said: int | None) -> Status:
    if one.part.outcome is Outcome.REFUSED:
        return Status.FAILED
    if said == one.part.target_offset:
        return Status.OK_BY_DESCRIPTION if one.part.outcome is Outcome.DONE else Status.UNKNOWN
    return Status.NOT_PERSISTED if one.part.outcome is Outcome.DONE else Status.NOT_ATTEMPTED


def _start_offsets(admin: ShareGroupAdmin, asked: Sequence[Asked]) -> list[int | None]:
    groups = dict.fromkeys(one.sent.group_id for one in asked)
    found = {
        (answer.group_id, offset.topic, offset.partition): offset.start_offset
        for answer in admin.describe_group_offsets(groups)
        for offset in answer.offsets
    }
    return [found.get(one.row.key) for one in asked]


def _unsettled(journal: Journal, plan: ResetPlan) -> list[GroupStanding]:
    """The groups to settle. Raises ChangeInProgress when another process that may live has the lease."""
    now_ms = journal.now_ms
    found = [s for s in journal.standings({"plan_id": plan.plan_id}) if s.lease is not None or s.standing in _UNSETTLED]
    for standing in found:
        lease = standing.lease
        is_answered = standing.newest.event == Event.AFTER_CALL
        if lease is None or is_answered or not lease.is_held(now_ms) or (lease.host, lease.pid) == here():
            continue
        left = (lease.expires_at_ms - now_ms) // 1000 + 1
        hint = f"process {lease.pid} on {lease.host} is at it, for at most {left} s more"
        raise ChangeInProgress(standing.group_id, plan_id=plan.plan_id, hint=hint)
    return found


def _verified(one: Asked, finding: Finding, now: PartitionState | None, described: int | None) -> Verified:
    before, part = one.row.state, one.part
    status, error = finding.status, part.error
    if status.is_ok and not finding.moved_on and described not in (None, part.target_offset):
        status, error = Status.UNKNOWN, f"the broker describes start offset {described}, the state topic has the target"
    if status is _OVERWRITTEN:
        error = f"start offset {None if now is None else now.start_offset} is there now, and the group is empty"
    return Verified(
        group_id=one.sent.group_id,
        topic=part.topic,
        topic_id=one.row.topic_id,
        partition=part.partition,
        target_offset=part.target_offset,
        status=status,
        error_code=part.error_code,
        error=error,
        error_scope=part.error_scope,
        advice="" if status.is_ok else part.advice,
        start_offset_before=one.row.start_offset,
        start_offset_after=None if now is None else now.start_offset,
        described_start_offset=described,
        snapshot_epoch_before=None if before is None else before.snapshot_epoch,
        snapshot_epoch_after=None if now is None else now.snapshot_epoch,
        state_epoch_before=None if before is None else before.state_epoch,
        state_epoch_after=None if now is None else now.state_epoch,
        evidence_state_partition=None if finding.evidence is None else finding.evidence[0],
        evidence_offset=None if finding.evidence is None else finding.evidence[1],
    )


def _row(one: Verified, plan_id: str, attempt: int, journal: Journal) -> dict[str, object]:
    from acktrail.reset.plain import to_plain

    at = dt.datetime.fromtimestamp(journal.now_ms / 1000, dt.UTC)
    return {**to_plain(one), "plan_id": plan_id, "attempt": attempt, "verified_at": at}


def _closing(plan: ResetPlan, unsettled: Sequence[GroupStanding], found: Sequence[Verified]) -> list[AuditEntry]:
    """For each group what was found, and its lease given back; one that was never sent failed."""
    entries: list[AuditEntry] = []
    for standing in unsettled:
        statuses = [one.status for one in found if one.group_id == standing.group_id]
        event, outcome = (Event.VERIFIED, _outcome(statuses)) if statuses else (Event.AFTER_CALL, "not_sent")
        counts = {status.value: statuses.count(status) for status in dict.fromkeys(statuses)}
        for what, word, detail in ((event, outcome, {"statuses": counts}), (Event.LEASE_RELEASED, None, {})):
            entries.append(
                AuditEntry(
                    kind=plan.kind.value,
                    event=what,
                    plan_id=plan.plan_id,
                    plan_hash=plan.plan_hash,
                    attempt=standing.attempt,
                    group_id=standing.group_id,
                    outcome=word,
                    detail=detail,
                )
            )
    return entries


def _outcome(statuses: Sequence[Status]) -> str:
    if any(status in (_OVERWRITTEN, Status.EPOCH_WENT_BACK) for status in statuses):
        return "overwritten"
    if Status.UNKNOWN in statuses:
        return "unknown"
    done = sum(status.is_ok for status in statuses)
    if done == len(statuses):
        return "done"
    return "partly" if done else "not_done"
