"""Looks at what an attempt did: in the state topic itself, by the broker's description, and for a while longer.

Nothing is changed in the cluster. What is found is noted and the lease is given back. This also settles an attempt
whose process was killed, and corrects what an earlier look found.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from acktrail.broker.changes import Outcome
from acktrail.broker.client.broker_client import Backoff
from acktrail.broker.state.state_topic import StateTopic
from acktrail.errors import RetryableError
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.exported_records import ExportedRecords
from acktrail.group_changes.collection.facts import PartitionState
from acktrail.group_changes.collection.partition_states import StateFacts, read_states
from acktrail.group_changes.execution.sent_request import SentPartition
from acktrail.group_changes.json_values import to_json_value
from acktrail.group_changes.lifecycle.change_status import Status
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.verification.open_attempts import closing, group_outcome, open_attempts, sent_in_attempts
from acktrail.group_changes.verification.partition_outcome import (
    GroupNow,
    LaterReset,
    ResetEvidence,
    ResetOutcome,
    Seen,
    VerifiedPartition,
    judge,
)
from acktrail.model.share_partition import SharePartition

T = TypeVar("T")

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
    found = _Verification(cluster, journal, plan, asked, wait_s).run(watch_s) if asked else ()
    if found:
        newest = {one.group_id: one.attempt for one in attempts}
        about = {"plan_id": plan.plan_id, "verified_at": dt.datetime.fromtimestamp(journal.now_ms / 1000, dt.UTC)}
        journal.write_executions({**to_json_value(one), **about, "attempt": newest[one.group_id]} for one in found)
    statuses = {one.group_id: [each.status for each in found if each.group_id == one.group_id] for one in attempts}
    outcomes = {one.group_id: group_outcome(one, mine) for one in attempts if (mine := statuses[one.group_id])}
    entries = closing(plan, attempts, outcomes)
    if entries:
        journal.note(entries)
    return found


class _Verification:
    """What became of the share partitions in `asked`, by the records of the state topic since they were sent."""

    def __init__(
        self, cluster: Cluster, journal: Journal, plan: ResetPlan, asked: Sequence[SentPartition], wait_s: float
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._plan = plan
        self._asked = tuple(asked)
        self._keys = frozenset(one.key for one in asked)
        self._wait_s = wait_s
        self._seen: dict[SharePartition, list[Seen]] = defaultdict(list)
        self._position: dict[int, int] = {}
        self._is_complete = True
        """Every record since the requests were sent was read."""

    def run(self, watch_s: float) -> tuple[VerifiedPartition, ...]:
        if self._plan.cluster.state_reason is not None:
            return self._by_description()
        self._lookup = self._cluster.state_lookup(StateTopic(self._cluster.admin))
        for one in self._asked:
            partition = self._lookup.state_partition(one.key)
            end = one.ends.get(partition, 0)
            self._position[partition] = min(self._position.get(partition, end), end)
        findings = _until(self._wait_s, self._look, lambda found: any(map(self._may_still_show, self._asked, found)))
        described = _until(
            self._wait_s,
            self._start_offsets,
            lambda starts: any(f.status.is_ok and at is None for f, at in zip(findings, starts, strict=True)),
        )
        patience = Backoff(watch_s)
        while any(finding.status.is_ok for finding in findings) and patience.wait():
            findings = self._look()
        states = self._states().states
        return tuple(
            _verified(one, finding, states.get(one.key), start_offset)
            for one, finding, start_offset in zip(self._asked, findings, described, strict=True)
        )

    def _states(self) -> StateFacts:
        return read_states(self._cluster, self._keys)

    def _may_still_show(self, one: SentPartition, finding: ResetOutcome) -> bool:
        if finding.status is Status.NOT_PERSISTED:
            return True
        is_open = finding.status is Status.NOT_ATTEMPTED and one.outcome is Outcome.UNKNOWN
        return is_open and self._journal.now_ms < one.sent_at_ms + self._wait_s * 1000

    def _look(self) -> list[ResetOutcome]:
        """What the records show by now; groups are described where that separates their own work from other changes."""
        self._read()
        states = StateFacts() if self._is_complete else self._states()
        findings = [self._judged(one, states, None) for one in self._asked]
        unclear = {one.row.group_id for one, f in zip(self._asked, findings, strict=True) if f.asks_group}
        if not unclear:
            return findings
        groups = {
            group.group_id: GroupNow(
                has_members=bool(group.members), epoch=None if group.error_code else group.group_epoch
            )
            for group in self._cluster.admin.describe_groups(sorted(unclear))
        }
        return [self._judged(one, states, groups.get(one.row.group_id)) for one in self._asked]

    def _read(self) -> None:
        """Take in what came since the last time. Where records were pruned meanwhile, the tables may still have them;
        without them, or where the log lost its end, what is left is taken in."""
        before = self._position
        try:
            records, self._position = self._lookup.read_from(self._keys, before)
        except RetryableError:
            starts = self._lookup.bounds(before)[0]
            pruned = {p: (at, starts[p]) for p, at in before.items() if at < starts[p]}
            if not pruned:
                raise
            self._fill(pruned)
            from_there = {p: max(at, starts[p]) for p, at in before.items()}
            records, self._position = self._lookup.read_from(self._keys, from_there)
        if any(self._position[partition] < at for partition, at in before.items()):
            self._is_complete = False
        for key, addressed in records:
            if addressed.record is not None:
                self._seen[key].append(((addressed.raw.state_partition, addressed.raw.offset), addressed.record))

    def _fill(self, pruned: dict[int, tuple[int, int]]) -> None:
        cluster = self._plan.cluster
        exported = ExportedRecords(
            tables=self._journal.tables,
            cluster_id=cluster.cluster_id,
            state_topic_id=cluster.state_topic_id,
            keys=self._keys,
        )
        found = exported.between(pruned) if self._is_complete else None
        self._is_complete = found is not None
        for key, seen in found or ():
            self._seen[key].append(seen)

    def _judged(self, one: SentPartition, states: StateFacts, group: GroupNow | None) -> ResetOutcome:
        partition = self._lookup.state_partition(one.key)
        end = one.ends.get(partition, 0)
        case = ResetEvidence(
            target=one.target_offset,
            outcome=one.outcome,
            before=one.row.state,
            sent_epoch=one.group_epoch,
            records=[seen for seen in self._seen[one.key] if seen[0][1] >= end],
            is_complete=self._is_complete,
            now=states.states.get(one.key),
            is_now_known=states.reason is None and one.key not in states.reasons,
            group=group,
            overwritten_at=one.overwritten_at,
            later=[LaterReset(end=ends.get(partition, end), target=target) for ends, target in one.later],
        )
        return judge(case)

    def _by_description(self) -> tuple[VerifiedPartition, ...]:
        """Without the state topic: the broker's word alone."""
        described = _until(
            self._wait_s,
            self._start_offsets,
            lambda starts: any(
                at != one.target_offset and one.outcome is not Outcome.REFUSED
                for one, at in zip(self._asked, starts, strict=True)
            ),
        )
        return tuple(
            _verified(one, ResetOutcome(status=_described_status(one, at)), None, at)
            for one, at in zip(self._asked, described, strict=True)
        )

    def _start_offsets(self) -> list[int | None]:
        """The start offsets that the broker describes."""
        found = {
            (answer.group_id, offset.topic, offset.partition): offset.start_offset
            for answer in self._cluster.admin.describe_group_offsets(dict.fromkeys(o.row.group_id for o in self._asked))
            for offset in answer.offsets
        }
        return [found.get(one.row.key) for one in self._asked]


def _until(wait_s: float, look: Callable[[], T], is_late: Callable[[T], bool]) -> T:
    """What `look` finds when it is not late any more, or the time is over."""
    patience = Backoff(wait_s)
    while True:
        found = look()
        if not is_late(found) or not patience.wait():
            return found


def _described_status(one: SentPartition, start_offset: int | None) -> Status:
    if one.outcome is Outcome.REFUSED:
        return Status.FAILED
    if start_offset == one.target_offset:
        return Status.OK_BY_DESCRIPTION if one.outcome is Outcome.DONE else Status.UNKNOWN
    if one.outcome is Outcome.DONE:
        return Status.NOT_PERSISTED if start_offset in (None, one.row.start_offset) else Status.UNKNOWN
    return Status.NOT_ATTEMPTED


def _verified(
    one: SentPartition, finding: ResetOutcome, now: PartitionState | None, described: int | None
) -> VerifiedPartition:
    before, status = one.row.state, finding.status
    error = one.error if finding.why is None else finding.why
    if status.is_ok and not finding.moved_on and described not in (None, one.target_offset):
        status = Status.UNKNOWN
        error = f"the broker describes start offset {described}, the state topic has the target"
    state_partition, offset = finding.evidence or (None, None)
    return VerifiedPartition(
        group_id=one.row.group_id,
        topic=one.row.topic,
        topic_id=one.row.topic_id,
        partition=one.row.partition,
        target_offset=one.target_offset,
        status=status,
        error_code=one.error_code,
        error=error,
        error_scope=one.error_scope,
        advice="" if status.is_ok else one.advice,
        start_offset_before=one.row.start_offset,
        start_offset_after=None if now is None else now.start_offset,
        described_start_offset=described,
        snapshot_epoch_before=None if before is None else before.snapshot_epoch,
        snapshot_epoch_after=None if now is None else now.snapshot_epoch,
        state_epoch_before=None if before is None else before.state_epoch,
        state_epoch_after=None if now is None else now.state_epoch,
        evidence_state_partition=state_partition,
        evidence_offset=offset,
    )
