"""Verification of resets: in the state topic, by the broker's description, and for a while longer.

Nothing is changed in the cluster. The outcome is recorded and the lease is released. This also settles an attempt whose
process was killed or whose answer was lost, and corrects what an earlier verification found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from acktrail.backoff import Backoff
from acktrail.change.audit.audit_chain import AuditEntry, Event, audit_entry
from acktrail.change.audit.journal import Journal
from acktrail.change.audit.plan_life import OPEN, ChangeStatus, GroupStatus, Status, standings
from acktrail.change.audit.sent_requests import Key, Unanswered, requests_after, rival_of, unanswered
from acktrail.change.change_kind import ChangeRun, Settled
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan.snapshot_facts import PartitionState, StateFacts
from acktrail.change.plan.snapshot_reader import described_offsets, read_states
from acktrail.change.verify.partition_outcome import (
    GroupNow,
    Place,
    ResetEvidence,
    ResetOutcome,
    Seen,
    SentPartition,
    VerifiedPartition,
    judge,
    sent_partitions,
    verified_partition,
)
from acktrail.errors import ChangeInProgress, RetryableError
from acktrail.kafka.changes import Outcome
from acktrail.kafka.log_reader import StateTopic
from acktrail.kafka.state_lookup import StateLookup
from acktrail.model.share_partition import SharePartition
from acktrail.tables.records.pruned_evidence import pruned_between

T = TypeVar("T")

_MAY_CHANGE: Final = frozenset({ChangeStatus.FAILED, ChangeStatus.OVERWRITTEN, ChangeStatus.PARTLY})
"""Settled, and still not what was asked for: a request may arrive late."""
_DONE: Final = frozenset({ChangeStatus.DONE, ChangeStatus.PARTLY})


def verify_reset(run: ChangeRun[ResetPlan]) -> Settled:
    """Find out what became of every group of the newest attempt at `plan` that is not known to be done. That includes
    what an earlier verification found undone, overwritten or unclear: a request that the network held back may have
    arrived since. It also includes what was done if the unanswered request of another plan may have come after it
    (`run.is_overtaken`: one has). Without such a group the result is empty.

    Raises:
        ChangeInProgress: another living process executes it.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing is settled.
    """
    journal, plan = run.journal, run.plan
    rivals = unanswered(journal.audit({"group_id": sorted(plan.group_ids)}), but=plan.plan_id)
    attempts = open_attempts(journal, plan, rivals, is_overtaken=run.is_overtaken)
    if not attempts:
        return Settled(groups={})
    asked = sent_in_attempts(journal, plan, attempts, rivals)
    found = _Verification(run, asked).outcomes() if asked else ()
    statuses: dict[str, list[Status]] = defaultdict(list)
    for row in found:
        statuses[row["group_id"]].append(Status(row["status"]))
    outcomes = {one.group_id: group_outcome(one, mine) for one in attempts if (mine := statuses[one.group_id])}
    return note_found(run, attempts, found, outcomes)


class _Verification:
    """The outcomes of the share partitions in `asked`, by the records of the state topic since they were sent."""

    def __init__(self, run: ChangeRun[ResetPlan], asked: Sequence[SentPartition]) -> None:
        self._cluster, self._journal, self._plan = run.cluster, run.journal, run.plan
        self._asked, self._wait_s, self._watch_s = asked, run.wait_s, run.watch_s
        self._keys = frozenset(one.row.share_partition for one in asked)
        self._seen: dict[SharePartition, list[Seen]] = defaultdict(list)
        self._position: dict[int, int] = {}
        self._is_complete = True
        """Every record since the requests were sent was read."""

    def outcomes(self) -> tuple[VerifiedPartition, ...]:
        """Return the outcome of each, in order."""
        if self._plan.cluster.state_reason is not None:
            return self._by_description()
        self._lookup = StateLookup(StateTopic(self._cluster.admin))
        for one in self._asked:
            partition = self._lookup.state_partition(one.row.share_partition)
            end = one.ends.get(partition, 0)
            self._position[partition] = min(self._position.get(partition, end), end)
        findings = until(self._wait_s, self._look, lambda found: any(map(self._may_still_show, self._asked, found)))
        described = until(
            self._wait_s,
            self._start_offsets,
            lambda starts: any(f.status.is_ok and at is None for f, at in zip(findings, starts, strict=True)),
        )
        patience = Backoff(self._watch_s)
        while any(finding.status.is_ok for finding in findings) and patience.wait():
            findings = self._look()
        states = read_states(self._cluster, self._keys).states
        return tuple(
            _verified(one, finding, states.get(one.row.share_partition), start_offset)
            for one, finding, start_offset in zip(self._asked, findings, described, strict=True)
        )

    def _may_still_show(self, one: SentPartition, finding: ResetOutcome) -> bool:
        if finding.status is Status.NOT_PERSISTED:
            return True
        is_open = (
            finding.status is Status.UNKNOWN and one.answer.outcome is Outcome.UNKNOWN and finding.evidence is None
        )
        return is_open and self._journal.now_ms < one.sent_at_ms + self._wait_s * 1000

    def _look(self) -> list[ResetOutcome]:
        """Return what the records show by now. Groups are described where that separates their own work from other
        changes."""
        self._read()
        states = StateFacts() if self._is_complete else read_states(self._cluster, self._keys)
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
        """Read the records since the last time. If records were pruned meanwhile, the tables may still have them. If
        they do not, or the log lost its end, the rest is used."""
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

    def _fill(self, pruned: Mapping[int, tuple[int, int]]) -> None:
        found = None
        if self._is_complete:
            cluster = self._plan.cluster
            about = (cluster.cluster_id, cluster.state_topic_id, self._keys, pruned)
            found = pruned_between(self._journal.tables, *about)
        self._is_complete = found is not None
        for key, seen in found or ():
            self._seen[key].append(seen)

    def _judged(self, one: SentPartition, states: StateFacts, group: GroupNow | None) -> ResetOutcome:
        key = one.row.share_partition
        partition = self._lookup.state_partition(key)
        end = one.ends.get(partition, 0)
        case = ResetEvidence(
            target=one.target_offset,
            outcome=one.answer.outcome,
            before=one.row.state,
            records=[seen for seen in self._seen[key] if seen[0][1] >= end],
            is_complete=self._is_complete,
            now=states.states.get(key),
            is_now_known=states.reason is None and key not in states.reasons,
            group=group,
            overwritten_at=one.overwritten_at,
            later=[(ends.get(partition, end), target) for ends, target in one.later],
            rival=one.rival,
        )
        return judge(case)

    def _by_description(self) -> tuple[VerifiedPartition, ...]:
        """Return the outcomes without the state topic, by the broker's description only."""
        described = until(
            self._wait_s,
            self._start_offsets,
            lambda starts: any(
                at != one.target_offset and one.answer.outcome is not Outcome.REFUSED
                for one, at in zip(self._asked, starts, strict=True)
            ),
        )
        return tuple(
            _verified(one, ResetOutcome(status=_described_status(one, at)), None, at)
            for one, at in zip(self._asked, described, strict=True)
        )

    def _start_offsets(self) -> list[int | None]:
        """Return the start offsets that the broker describes."""
        found = described_offsets(self._cluster.admin, dict.fromkeys(one.row.group_id for one in self._asked))
        offsets = [found[one.row.group_id].get((one.row.topic, one.row.partition)) for one in self._asked]
        return [None if offset is None else offset.start_offset for offset in offsets]


def until(wait_s: float, look: Callable[[], T], is_late: Callable[[T], bool]) -> T:
    """Return the result of `look` once `is_late` does not hold for it, or when the time is over."""
    patience = Backoff(wait_s)
    while True:
        found = look()
        if not is_late(found) or not patience.wait():
            return found


def _described_status(one: SentPartition, start_offset: int | None) -> Status:
    if one.answer.outcome is Outcome.REFUSED:
        return Status.FAILED
    if start_offset == one.target_offset:
        return Status.OK_BY_DESCRIPTION if one.answer.outcome is Outcome.DONE else Status.UNKNOWN
    if one.answer.outcome is Outcome.DONE:
        return Status.NOT_PERSISTED if start_offset in (None, one.row.start_offset) else Status.UNKNOWN
    return Status.UNKNOWN if one.answer.outcome is Outcome.UNKNOWN else Status.NOT_ATTEMPTED


def _verified(
    one: SentPartition, finding: ResetOutcome, now: PartitionState | None, described: int | None
) -> VerifiedPartition:
    before, status = one.row.state, finding.status
    error = finding.why or one.answer.error
    if status is Status.UNKNOWN and error is None:
        error = "no answer was noted, and the state topic does not show it: it may still arrive"
    if status.is_ok and not finding.moved_on and described not in (None, one.target_offset):
        status = Status.UNKNOWN
        error = f"the broker describes start offset {described}, the state topic has the target"
    state_partition, offset = finding.evidence or (None, None)
    return verified_partition(
        one.row,
        status,
        error,
        target_offset=one.target_offset,
        error_code=one.answer.error_code,
        error_scope=one.answer.error_scope and one.answer.error_scope.value,
        advice="" if status.is_ok else one.answer.advice,
        start_offset_before=one.row.start_offset,
        start_offset_after=now and now.start_offset,
        described_start_offset=described,
        snapshot_epoch_before=before and before.snapshot_epoch,
        snapshot_epoch_after=now and now.snapshot_epoch,
        state_epoch_before=before and before.state_epoch,
        state_epoch_after=now and now.state_epoch,
        evidence_state_partition=state_partition,
        evidence_offset=offset,
    )


def open_attempts(
    journal: Journal, plan: ResetPlan, rivals: Sequence[Unanswered] = (), *, is_overtaken: bool = False
) -> list[GroupStatus]:
    """Return the newest attempt at each group of `plan` that is not settled, or settled as something else than done, or
    that one of `rivals` may have overtaken since. Raises as `check_free`."""
    rows = journal.audit({"plan_id": plan.plan_id})
    sent = {row.group_id: row.sequence for row in rows if row.event == Event.BEFORE_CALL}
    overtaken = {one.group_id for one in rivals if one.before.sequence < sent.get(one.group_id, 0)}
    outcomes = {(row.group_id, row.attempt): row.outcome for row in rows if row.event == Event.VERIFIED}
    found = [
        one
        for one in standings(rows)
        if one.lease is not None
        or one.standing in {*OPEN, ChangeStatus.STARTED}
        or (one.standing in _MAY_CHANGE and outcomes.get((one.group_id, one.attempt)) != "done")
        or (one.standing in _DONE and (is_overtaken or one.group_id in overtaken))
    ]
    check_free(found, plan.plan_id, journal.now_ms)
    return found


def unsettled(run: ChangeRun[Any]) -> list[GroupStatus]:
    """Return the newest attempt at each group of the plan that is not settled. Raises as `check_free`."""
    found = run.journal.standings({"plan_id": run.plan.plan_id})
    own = [one for one in found if one.lease is not None or one.standing in OPEN]
    check_free(own, run.plan.plan_id, run.journal.now_ms)
    return own


def check_free(attempts: Iterable[GroupStatus], plan_id: str, now_ms: int) -> None:
    """Raise ChangeInProgress if another process that may live works on one of `attempts`."""
    for one in attempts:
        lease, is_answered = one.lease, one.newest.event == Event.AFTER_CALL
        if lease is not None and not is_answered and lease.is_held(now_ms) and not lease.is_own:
            raise ChangeInProgress(one.group_id, plan_id=plan_id, hint=lease.text(now_ms))


def sent_in_attempts(
    journal: Journal, plan: ResetPlan, attempts: Sequence[GroupStatus], rivals: Sequence[Unanswered] = ()
) -> list[SentPartition]:
    """Return every share partition that was sent in `attempts`, after `rivals`."""
    newest = {one.group_id: one.attempt for one in attempts}
    rows = journal.audit({"plan_id": plan.plan_id})
    own = [row for row in rows if row.group_id is not None and row.attempt == newest.get(row.group_id)]
    asked = [replace(one, rival=rival_of(one.row.key, one.target_offset, rivals)) for one in sent_partitions(plan, own)]
    now_ms = journal.now_ms
    if all(one.lease is not None and one.lease.is_held(now_ms) for one in attempts):
        return asked
    later: dict[Key, list[tuple[Mapping[int, int], int]]] = defaultdict(list)
    for _, key, target, ends in requests_after(journal, own, {one.row.group_id for one in asked}):
        later[key].append((ends, target))
    overwritten = _overwritten(journal.executions(plan.plan_id), newest)
    return [
        replace(one, later=later.get(one.row.key, ()), overwritten_at=overwritten.get(one.row.key)) for one in asked
    ]


def note_found(
    run: ChangeRun[Any],
    attempts: Sequence[GroupStatus],
    found: Sequence[VerifiedPartition],
    outcomes: Mapping[str, tuple[str, Mapping[str, Any]]],
) -> Settled:
    """Record what was `found` of share partitions and groups in `attempts`, and release the leases."""
    newest, about = {one.group_id: one.attempt for one in attempts}, {"plan_id": run.plan.plan_id}
    if found:
        run.journal.write_executions({**row, **about, "attempt": newest[row["group_id"]]} for row in found)
    entries = closing(run.plan, attempts, outcomes)
    if entries:
        run.journal.note(entries)
    return Settled(groups={group: outcome for group, (outcome, _) in outcomes.items()}, partitions=tuple(found))


def closing(
    plan: ChangePlan, attempts: Iterable[GroupStatus], outcomes: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> list[AuditEntry]:
    """Return the audit entries that close `attempts`: for each group the outcome with its detail, and the release of
    its lease. A group to which nothing was sent failed."""
    entries: list[AuditEntry] = []
    for one in attempts:
        if one.group_id in outcomes:
            outcome, detail = outcomes[one.group_id]
            entries.append(audit_entry(plan, one.attempt, Event.VERIFIED, one.group_id, outcome=outcome, detail=detail))
        elif one.standing is ChangeStatus.STARTED:
            entries.append(audit_entry(plan, one.attempt, Event.AFTER_CALL, one.group_id, outcome="not_sent"))
        if one.lease is not None:
            entries.append(audit_entry(plan, one.attempt, Event.LEASE_RELEASED, one.group_id))
    return entries


def group_outcome(one: GroupStatus, statuses: Sequence[Status]) -> tuple[str, dict[str, Any]]:
    """Return what became of a group by its share partitions, and the detail of the row about it."""
    detail: dict[str, Any] = {"statuses": Counter(statuses)}
    if one.standing in _MAY_CHANGE | _DONE:
        detail["corrects"] = one.standing.value
    if Status.OVERWRITTEN_AFTER_RESET in statuses or Status.EPOCH_WENT_BACK in statuses:
        return "overwritten", detail
    if Status.UNKNOWN in statuses:
        return "unknown", detail
    done = sum(status.is_ok for status in statuses)
    return "done" if done == len(statuses) else "partly" if done else "not_done", detail


def _overwritten(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, int]) -> dict[Key, Place | None]:
    """Return by share partition the record by which the last verification found its reset overwritten; None: it did
    not."""
    found: dict[Key, Place | None] = {}
    for row in rows:
        if row["attempt"] == newest.get(row["group_id"]):
            place = row["evidence_state_partition"], row["evidence_offset"]
            is_lost = row["status"] == Status.OVERWRITTEN_AFTER_RESET and None not in place
            found[row["group_id"], row["topic"], row["partition"]] = place if is_lost else None
    return found
