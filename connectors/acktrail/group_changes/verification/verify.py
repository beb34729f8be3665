"""Looks at what an attempt did: in the state topic itself, by the broker's description, and for a while longer.

Nothing is changed in the cluster. What is found is noted and the lease is given back. This also settles an attempt
whose process was killed, and corrects what an earlier look found.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import Outcome
from acktrail.broker.client.broker_client import Backoff
from acktrail.broker.state.state_topic import StateTopic
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.exported_records import ExportedRecords
from acktrail.group_changes.collection.facts import PartitionState
from acktrail.group_changes.collection.partition_states import StateFacts, read_states
from acktrail.group_changes.lifecycle.change_status import GroupStatus
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.verification.open_attempts import closing, open_attempts, sent_in_attempts
from acktrail.group_changes.verification.partition_outcome import GroupNow, ResetOutcome, Status, VerifiedPartition
from acktrail.group_changes.verification.state_watch import SentPartition, StateWatch

WAIT_S: Final = 30.0
"""How long a record may take to show, and how long a request may be on its way after its sender was killed."""
WATCH_S: Final = 5.0


def verify_reset(
    cluster: Cluster, journal: Journal, plan: ResetPlan, *, wait_s: float = WAIT_S, watch_s: float = WATCH_S
) -> tuple[VerifiedPartition, ...]:
    """Find out what became of every group of the newest attempt at `plan` that is not known to be done.

    That is what was not looked at yet, and what an earlier look found undone, overwritten or unclear: a request that
    the network held back may have arrived since. Nothing to find out gives nothing. What is found is noted again.

    `wait_s`: how long to wait for a record, and (after the request was sent) for one of a request without an answer.
    `watch_s`: how long to watch afterwards that nothing overwrites the start offsets of a group that stays empty.

    Raises:
        ChangeInProgress: another living process executes it.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing is settled.
    """
    attempts = open_attempts(journal, plan)
    if not attempts:
        return ()
    asked = sent_in_attempts(journal, plan, attempts)
    found = _Verification(cluster, journal, plan, asked, wait_s, watch_s).run() if asked else ()
    if found:
        journal.write_executions(_rows(found, plan, attempts, journal))
    entries = closing(plan, attempts, found)
    if entries:
        journal.note(entries)
    return found


class _Verification:
    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        plan: ResetPlan,
        asked: Sequence[SentPartition],
        wait_s: float,
        watch_s: float,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._plan = plan
        self._asked = tuple(asked)
        self._wait_s = wait_s
        self._watch_s = watch_s

    def run(self) -> tuple[VerifiedPartition, ...]:
        admin = self._cluster.admin
        if self._plan.cluster.state_reason is not None:
            return self._by_description(admin)
        lookup = self._cluster.state_lookup(StateTopic(admin))
        watch = StateWatch(lookup, self._asked, self._exported().between)
        found = self._settled(admin, watch)
        described = self._described(admin, found)
        found = self._watched(admin, watch, found)
        states = self._states().states
        return tuple(
            _verified(one, outcome, states.get(one.key), start_offset)
            for one, outcome, start_offset in zip(self._asked, found, described, strict=True)
        )

    def _states(self) -> StateFacts:
        return read_states(self._cluster, {one.key for one in self._asked})

    def _exported(self) -> ExportedRecords:
        cluster = self._plan.cluster
        return ExportedRecords(
            tables=self._journal.tables,
            cluster_id=cluster.cluster_id,
            state_topic_id=cluster.state_topic_id,
            keys=frozenset(one.key for one in self._asked),
        )

    def _settled(self, admin: ShareGroupAdmin, watch: StateWatch) -> list[ResetOutcome]:
        """Read until each has shown, or the time is over in which it can."""
        patience = Backoff(self._wait_s)
        while True:
            watch.read()
            findings = self._judged(admin, watch)
            pending = [o for o, f in zip(self._asked, findings, strict=True) if self._may_still_show(o, f)]
            if not pending or not patience.wait():
                return findings

    def _may_still_show(self, one: SentPartition, finding: ResetOutcome) -> bool:
        if finding.status is Status.NOT_PERSISTED:
            return True
        is_open = finding.status is Status.NOT_ATTEMPTED and one.part.outcome is Outcome.UNKNOWN
        return is_open and self._journal.now_ms < one.sent.sent_at_ms + self._wait_s * 1000

    def _judged(self, admin: ShareGroupAdmin, watch: StateWatch) -> list[ResetOutcome]:
        """The findings; groups are described where that separates their own work from other changes."""
        states = StateFacts()
        if not watch.is_complete:
            states = self._states()
        findings = watch.outcomes(states, {})
        unclear = {o.sent.group_id for o, f in zip(self._asked, findings, strict=True) if f.asks_group}
        if not unclear:
            return findings
        groups = {
            group.group_id: GroupNow(
                has_members=bool(group.members), epoch=None if group.error_code else group.group_epoch
            )
            for group in admin.describe_groups(sorted(unclear))
        }
        return watch.outcomes(states, groups)

    def _described(self, admin: ShareGroupAdmin, findings: Sequence[ResetOutcome]) -> list[int | None]:
        """The start offsets that the broker describes; asked again while those that are done are not there yet."""
        patience = Backoff(self._wait_s)
        while True:
            found = _start_offsets(admin, self._asked)
            late = [
                one
                for one, finding, start_offset in zip(self._asked, findings, found, strict=True)
                if finding.status.is_ok and start_offset is None
            ]
            if not late or not patience.wait():
                return found

    def _watched(self, admin: ShareGroupAdmin, watch: StateWatch, findings: list[ResetOutcome]) -> list[ResetOutcome]:
        patience = Backoff(self._watch_s)
        while any(finding.status.is_ok for finding in findings) and patience.wait():
            watch.read()
            findings = self._judged(admin, watch)
        return findings

    def _by_description(self, admin: ShareGroupAdmin) -> tuple[VerifiedPartition, ...]:
        """Without the state topic: the broker's word alone."""
        patience = Backoff(self._wait_s)
        while True:
            described = _start_offsets(admin, self._asked)
            late = [
                one
                for one, start_offset in zip(self._asked, described, strict=True)
                if start_offset != one.part.target_offset and one.part.outcome is not Outcome.REFUSED
            ]
            if not late or not patience.wait():
                break
        return tuple(
            _verified(one, ResetOutcome(status=_described_status(one, start_offset)), None, start_offset)
            for one, start_offset in zip(self._asked, described, strict=True)
        )


def _described_status(one: SentPartition, start_offset: int | None) -> Status:
    if one.part.outcome is Outcome.REFUSED:
        return Status.FAILED
    if start_offset == one.part.target_offset:
        return Status.OK_BY_DESCRIPTION if one.part.outcome is Outcome.DONE else Status.UNKNOWN
    if one.part.outcome is Outcome.DONE:
        return Status.NOT_PERSISTED if start_offset in (None, one.row.start_offset) else Status.UNKNOWN
    return Status.NOT_ATTEMPTED


def _start_offsets(admin: ShareGroupAdmin, asked: Sequence[SentPartition]) -> list[int | None]:
    groups = dict.fromkeys(one.sent.group_id for one in asked)
    found = {
        (answer.group_id, offset.topic, offset.partition): offset.start_offset
        for answer in admin.describe_group_offsets(groups)
        for offset in answer.offsets
    }
    return [found.get(one.row.key) for one in asked]


def _verified(
    one: SentPartition, finding: ResetOutcome, now: PartitionState | None, described: int | None
) -> VerifiedPartition:
    before, part = one.row.state, one.part
    status, error = finding.status, part.error
    if status.is_ok and not finding.moved_on and described not in (None, part.target_offset):
        status, error = (
            Status.UNKNOWN,
            f"the broker describes start offset {described}, the state topic has the target",
        )
    elif finding.why is not None:
        error = finding.why
    return VerifiedPartition(
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


def _rows(
    found: Sequence[VerifiedPartition], plan: ResetPlan, attempts: Sequence[GroupStatus], journal: Journal
) -> list[dict[str, object]]:
    from acktrail.group_changes.json_values import to_json_value

    newest = {standing.group_id: standing.attempt for standing in attempts}
    at = dt.datetime.fromtimestamp(journal.now_ms / 1000, dt.UTC)
    return [
        {**to_json_value(one), "plan_id": plan.plan_id, "attempt": newest[one.group_id], "verified_at": at}
        for one in found
    ]
