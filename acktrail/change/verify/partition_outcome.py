"""What the state topic says became of a reset of one share partition. Pure.

A reset is one snapshot record: the new start offset, no batches, leader epoch 0, delivery complete count 0 or not
known, written when it was created, a higher snapshot epoch, the group's epoch as its state epoch. A snapshot that a
quiet shard writes later has another create time and changes nothing. A leader never writes another state epoch, and
never moves a start offset back: only a request does (KIP-932, `ShareCoordinatorShard`). Where records were pruned
before they were read, and were not exported, only the present state decides, often as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from acktrail.change.audit.audit_chain import AUDIT, AuditRow, Event
from acktrail.change.audit.plan_life import Status
from acktrail.change.audit.sent_requests import asked_in
from acktrail.change.plan.change_plan import ChangePlan, PartitionPlan
from acktrail.change.plan.snapshot_facts import PartitionState
from acktrail.dataclass_json import from_json_value, stored_object
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone

Place = tuple[int, int]
"""Where a record stands: state partition, offset."""
Seen = tuple[Place, StateRecord]
VerifiedPartition = dict[str, Any]
"""What became of one share partition: a row of ``reset_executions`` without plan, attempt and time. Epochs and start
offsets before are the plan's, after the state topic's."""
Since = Literal["empty", "worked", "unknown"]
"""What the group did since a state epoch was written, the group's epoch of that time: whether a member joined."""
_NOT_THERE: Final = {
    Outcome.DONE: Status.NOT_PERSISTED,
    Outcome.REFUSED: Status.FAILED,
    Outcome.NOT_ATTEMPTED: Status.NOT_ATTEMPTED,
    Outcome.UNKNOWN: Status.UNKNOWN,
}
"""Where nothing shows it. A request without an answer may still arrive."""
_content: Final = attrgetter("start_offset", "batches", "state_epoch")
_PRUNED: Final = "the records that would show it are pruned"
_MAYBE_OWN: Final = f"{_PRUNED}, and the group may have moved on by itself"
_FOUND: Final = (
    *("error_code", "error_scope", "start_offset_before", "start_offset_after", "described_start_offset"),
    *("snapshot_epoch_before", "snapshot_epoch_after", "state_epoch_before", "state_epoch_after"),
    *("evidence_state_partition", "evidence_offset"),
)


def verified_partition(row: PartitionPlan, status: Status, error: str | None, **found: Any) -> VerifiedPartition:
    """Return the row for the outcome of one share partition of a plan, with what was `found` besides."""
    names = ("group_id", "topic", "topic_id", "partition", "target_offset")
    about = {name: getattr(row, name) for name in names}
    return {**about, "status": status.value, "error": error, "advice": "", **dict.fromkeys(_FOUND), **found}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPartition:
    """One share partition of a request: what the plan found there, what was asked, what the broker said (no answer: its
    outcome is UNKNOWN). `ends` are the state partitions' ends right before it was sent. From the second verification
    on: what others asked `later` (the ends then, and their target), and the record (state partition, offset) by which
    it was found `overwritten_at`. `rival`: the plan whose unanswered request asked for the same before."""

    row: PartitionPlan
    target_offset: int
    sent_at_ms: int
    ends: Mapping[int, int]
    answer: ChangeResult
    later: Sequence[tuple[Mapping[int, int], int]] = ()
    overwritten_at: tuple[int, int] | None = None
    rival: str | None = None


def sent_partitions(plan: ChangePlan, rows: Iterable[AuditRow]) -> list[SentPartition]:
    """Return every share partition that was sent by `rows`, which are those of one attempt at each group of `plan`."""
    requests: dict[str, dict[str, Any]] = {}
    answers: dict[str, dict[str, Any]] = {}
    for row in rows:
        kept = {Event.BEFORE_CALL: requests, Event.AFTER_CALL: answers}.get(Event(row.event))
        if kept is not None:
            kept.setdefault(row.group_id or "", stored_object(row.detail, AUDIT, "detail"))
    planned = {row.key: row for row in plan.partitions}
    found = []
    for group_id, request in requests.items():
        answer = answers.get(group_id)
        failed = [from_json_value(ChangeResult, one) for one in answer["failed"]] if answer is not None else []
        by_part = {(one.topic, one.partition): one for one in failed}
        outcome = Outcome.UNKNOWN if answer is None else Outcome.DONE
        other = ChangeResult(group_id=group_id, outcome=outcome, error_code=None)
        ends, parts = asked_in(request)
        for topic, part, target in parts:
            one = SentPartition(
                row=planned[group_id, topic, part],
                target_offset=target,
                sent_at_ms=request["sent_at_ms"],
                ends=ends,
                answer=by_part.get((topic, part), other),
            )
            found.append(one)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNow:
    """A group as it is described now. `epoch` None: it is not known."""

    has_members: bool
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetEvidence:
    """What is known of a reset to `target`: what the broker said, and the state in the plan (None: there was none).

    `records` are those of the share partition since the change was sent, in order; where some of them are missing
    (`is_complete` false), `now`, the present state, decides (None: there is none), if it is known. `group` None: it was
    not asked. `overwritten_at`: the record by which an earlier look, at a group that had not begun to work, found the
    reset overwritten. `later`: what other plans and attempts asked for since, each the end of the state partition when
    it was sent, and its target. `rival`: a plan that asked for the same before, whose request may still arrive.
    """

    target: int
    outcome: Outcome
    before: PartitionState | None = None
    records: Sequence[Seen] = ()
    is_complete: bool = True
    now: PartitionState | None = None
    is_now_known: bool = True
    group: GroupNow | None = None
    overwritten_at: Place | None = None
    later: Sequence[tuple[int, int]] = ()
    rival: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOutcome:
    """`evidence` is the record that shows it; `why` says more, where the status is not enough. `moved_on`: the group
    went to work since, what came after the reset is its own. `asks_group`: its description would show more."""

    status: Status
    evidence: Place | None = None
    moved_on: bool = False
    asks_group: bool = False
    why: str | None = None


def judge(case: ResetEvidence) -> ResetOutcome:
    """Decide what became of a reset. The effect of a later request is not mistaken for this one's, nor for something
    that overwrote it: behind a later request only a target of its own identifies this one."""
    end = min((end for end, _ in case.later), default=None)
    parts = [[seen for seen in case.records if end is None or seen[0][1] < end]]
    if end is not None and case.target not in {target for _, target in case.later}:
        parts.append([seen for seen in case.records if seen[0][1] >= end])
    for records in parts:
        found = _by_records(case, records)
        if found is not None:
            return _unless_rival(case, found)
    if case.is_complete:
        return ResetOutcome(status=_NOT_THERE[case.outcome])
    if case.later:
        return _unless_refused(case, None, f"{_PRUNED}, and another request was sent since")
    return _without_records(case)


def _by_records(case: ResetEvidence, records: Sequence[Seen]) -> ResetOutcome | None:
    for index, (place, record) in enumerate(records):
        if not isinstance(record, ShareSnapshot) or record.start_offset != case.target or not _is_of_a_request(record):
            continue
        if case.before is None or record.snapshot_epoch > case.before.snapshot_epoch:
            return _afterwards(case, place, record, records[index + 1 :])
    return None


def _unless_rival(case: ResetEvidence, found: ResetOutcome) -> ResetOutcome:
    """Return `found`, or an unknown outcome where it may be the effect of another plan's unanswered request. If the
    broker answered, it is this one's."""
    if case.rival is None or case.outcome is Outcome.DONE:
        return found
    return _unless_refused(case, found.evidence, f"plan {case.rival} asked for the same: this may be its work")


def _afterwards(case: ResetEvidence, place: Place, reset: ShareSnapshot, later: Sequence[Seen]) -> ResetOutcome:
    """Judge a reset that is there by the first record after it that says something else."""
    done = _by_state_epoch(case.before, reset.state_epoch)
    found = next((seen for seen in later if _contradicts(case.target, seen[1])), None)
    if found is None:
        return ResetOutcome(status=done, evidence=place)
    where, record = found
    start = None if isinstance(record, Tombstone) else record.start_offset
    if _is_of_a_request(record):
        what = "its state was deleted" if isinstance(record, Tombstone) else f"it was set to {start}"
        return _overwritten(where, f"{what} afterwards by another request")
    since = _since(reset.state_epoch, case.group)
    if since == "empty" or where == case.overwritten_at:
        return _overwritten(where, f"start offset {start} was written although no member had joined the group")
    if since == "worked":
        status = done if done is Status.EPOCH_WENT_BACK else Status.OK
        return ResetOutcome(status=status, evidence=place, moved_on=True)
    why = "it was done, and whether the group or something else changed it since is not known"
    return ResetOutcome(status=Status.UNKNOWN, evidence=where, asks_group=case.group is None, why=why)


def _overwritten(where: Place, why: str) -> ResetOutcome:
    return ResetOutcome(status=Status.OVERWRITTEN_AFTER_RESET, evidence=where, why=why)


def _without_records(case: ResetEvidence) -> ResetOutcome:
    now, before, not_there = case.now, case.before, ResetOutcome(status=_NOT_THERE[case.outcome])
    if not case.is_now_known:
        return ResetOutcome(status=Status.UNKNOWN, why="the present state cannot be read")
    if now is None:
        if before is None and case.outcome is not Outcome.DONE:
            return not_there
        return _unless_refused(case, None, f"its state is gone, and {_PRUNED}")
    where = (now.state_partition, now.record_offset)
    if before is not None and now.snapshot_epoch < before.snapshot_epoch:
        return _unless_refused(case, where, "its state was deleted and recreated since")
    if before is not None and now.snapshot_epoch == before.snapshot_epoch:
        return not_there
    if now.start_offset == case.target and not now.batches:
        return _unless_rival(case, ResetOutcome(status=_by_state_epoch(before, now.state_epoch), evidence=where))
    if before is not None and _content(now) == _content(before):
        return not_there  # a quiet shard writes the same again under the next snapshot epoch
    return _by_state(case, now, where)


def _by_state(case: ResetEvidence, now: PartitionState, where: Place) -> ResetOutcome:
    """Judge only by the present state, which is another than before and than the target. Whether the group's own work
    led there is not known, unless it has not worked."""
    if case.group is None:
        return ResetOutcome(status=Status.UNKNOWN, evidence=where, asks_group=True, why=_MAYBE_OWN)
    if case.overwritten_at is not None:
        return _overwritten(case.overwritten_at, "an earlier look found it overwritten before anybody joined the group")
    is_off = now.start_offset != case.target and _since(now.state_epoch, case.group) == "empty"
    if is_off and case.outcome is Outcome.DONE:
        return _overwritten(
            where, f"start offset {now.start_offset} was written although no member had joined the group"
        )
    return _unless_refused(case, where, _MAYBE_OWN)


def _unless_refused(case: ResetEvidence, where: Place | None, why: str) -> ResetOutcome:
    """Return an unknown outcome, or FAILED if the broker refused it."""
    if case.outcome is Outcome.REFUSED:
        return ResetOutcome(status=Status.FAILED)
    return ResetOutcome(status=Status.UNKNOWN, evidence=where, why=why)


def _since(state_epoch: int | None, group: GroupNow | None) -> Since:
    if group is None:
        return "unknown"
    if group.has_members:
        return "worked"
    if group.epoch is None or state_epoch is None:
        return "unknown"
    return "empty" if group.epoch == state_epoch else "worked"


def _is_of_a_request(record: StateRecord) -> bool:
    """Return whether a request (alter, initialize, delete) wrote the record, and not a leader."""
    if not isinstance(record, ShareSnapshot):
        return isinstance(record, Tombstone)
    return record.is_initialization and record.delivery_complete_count in (0, None)


def _contradicts(target: int, record: StateRecord) -> bool:
    """Return whether a later record says something else than a reset to `target`."""
    return isinstance(record, Tombstone) or bool(record.batches) or record.start_offset not in (target, None)


def _by_state_epoch(before: PartitionState | None, state_epoch: int | None) -> Status:
    if before is None or before.state_epoch is None or state_epoch is None or state_epoch > before.state_epoch:
        return Status.OK
    return Status.OK_EPOCH_NOT_BUMPED if state_epoch == before.state_epoch else Status.EPOCH_WENT_BACK
