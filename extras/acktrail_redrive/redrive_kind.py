"""The redrive as a kind of change: transactions that the audit row before them fixes, and their coordinators as the
journal of what was written.

The row ``before_call`` has the ranges of the list that become one transaction each. The id of a transaction follows
from plan, attempt and range, and is used once. So after a crash the coordinators say which ranges were written. A
writer that was thought dead cannot commit: right before each commit it looks in the audit whether the lease is still
its own, and a verification takes the lease first, then ends what is open.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.audit.audit_chain import AUDIT, AuditRow, Event, audit_entry
from acktrail.change.audit.plan_life import OPEN, PLAN_AGAIN, ChangeStatus, GroupStatus
from acktrail.change.change_kind import ChangeKind, ChangeOutcome, ChangeRun, Execution, Row, Settled
from acktrail.change.plan.notices import refusal_error
from acktrail.change.verify.reset_verification import note_found, unsettled
from acktrail.dataclass_json import stored_object
from acktrail.errors import AcktrailError, NotAuthorized, PartlyDone, PlanStale, RetryableError
from acktrail.kafka.admin import client_of
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.kafka.client.transactions import TransactionEnding, Transactions
from acktrail.kafka.describe_configs import broker_config
from acktrail.kafka.descriptions import TopicPartition
from acktrail.model.acls import Acl
from acktrail.model.offset_ranges import OffsetRanges, Span
from acktrail.text_tables import table
from acktrail.times import instant_text
from acktrail.view.wording import counted
from acktrail_redrive import IDS
from acktrail_redrive.put_back import PutBack, id_of
from acktrail_redrive.redrive_plan import RedrivePlan
from acktrail_redrive.redriven_records import RedrivenRecords

_SHOWN: Final = 40
_KEPT: Final = "transactional.id.expiration.ms"
_KEPT_MS: Final = 7 * 86_400_000
"""How long a coordinator keeps an id after its last transaction, by default."""
_SURELY: Final = 0.9
"""Of that time, an id is taken to be kept."""


class _Redrive(ChangeKind[RedrivePlan]):
    plan_type = RedrivePlan
    command = "acktrail change plan redrive"
    is_paced = True
    no_undo = (
        "Kafka cannot take records out of a topic: let the group finish them, or archive them once more by rejecting "
        "them; `redriven_records` has their offsets"
    )

    def rights(self, plan: RedrivePlan) -> Sequence[Acl]:
        ids = Acl("WRITE", "transactional-id", IDS, is_prefix=True)
        return [Acl("READ", "topic", plan.topic), Acl("WRITE", "topic", plan.target.topic), ids]

    def text(self, plan: RedrivePlan) -> str:
        rows = [(plan.topic, own.partition, own.records, _ranges(own.ranges)) for own in plan.sources]
        more = [f"... {len(rows) - _SHOWN} more; all of them are in --json"] if len(rows) > _SHOWN else []
        times = f"from {instant_text(plan.oldest_ms)} to {instant_text(plan.newest_ms)}" if plan.records else ""
        causes = ", ".join(f"{one.cause} {one.records}" for one in plan.by_cause)
        head = f"{counted(plan.records, 'record')}, {plan.record_bytes:,} bytes, {times}; by cause: {causes}"
        own = table(("TOPIC", "PARTITION", "RECORDS", "OFFSETS"), rows[:_SHOWN])
        return "\n".join([head, own, *more, f"nothing takes a redrive back: {self.no_undo}"])

    def would_send(self, run: ChangeRun[RedrivePlan]) -> Sequence[Row]:
        if run.is_done:
            return ()
        _check(run)
        topic = run.plan.target.topic
        return [{"records": b - a + 1, "first": a, "last": b, "into": topic} for a, b in _left(run)]

    def execute(self, run: ChangeRun[RedrivePlan]) -> Execution:
        plan = run.plan
        if run.is_done:
            return Execution(plan_id=plan.plan_id, attempt=0, results=())
        _check(run)
        attempt = Attempt(run.journal, plan, plan.group_ids)
        with attempt.take_leases(run.check, run.requests):
            left = _left(run)
            if not left:
                return Execution(plan_id=plan.plan_id, attempt=0, results=())
            put_back = PutBack(run, attempt, left)

            def call(group_id: str) -> Sequence[ChangeResult] | AcktrailError:
                return attempt.call(group_id, put_back.request, put_back.send, check=lambda: _check(run))

            return attempt.send(plan.group_ids, call, run.cluster.kafka.request_timeout_ms, goes_on=False)

    def settle(self, run: ChangeRun[RedrivePlan]) -> Settled:
        """End what is open under the ids of each attempt that is not settled. `forgotten`: coordinators lost some."""
        found = [_taken_over(run, one) for one in unsettled(run)]
        stored, written = RedrivenRecords(run), _written(run)
        outcomes: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for one in found:
            if one.standing in OPEN:
                request = _request(run, one.attempt)
                parts, is_known = _endings(run, one.attempt, request, stored)
                stored.complete(one.attempt, parts, request)
                for part in parts:
                    written.add(*part)
                count = _count(written)
                word = "done" if count == run.plan.records else "partly" if count else "not_done"
                outcomes[one.group_id] = word if is_known else "forgotten", {"written": parts}
        settled = note_found(run, found, (), outcomes)
        return replace(settled, note=stored.note(_count(written)))

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        results = () if outcome.execution is None else outcome.execution.results
        why = next((one.error for one in results if one.outcome is Outcome.REFUSED and one.error), None)
        if why is not None and outcome.standing in (ChangeStatus.PARTLY, ChangeStatus.FAILED):
            error = PartlyDone if outcome.standing is ChangeStatus.PARTLY else RetryableError
            raise error(f"{outcome.settled.note}, then it stopped: {why}")


REDRIVE: Final[ChangeKind[Any]] = _Redrive()


def _ranges(ranges: Sequence[Span]) -> str:
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges[:5])
    return shown if len(ranges) <= 5 else f"{shown} and {len(ranges) - 5} more ranges"


def _check(run: ChangeRun[RedrivePlan]) -> None:
    """Raise what forbids to send anything: refusals, topics that changed, records that are gone, missing rights."""
    plan, admin = run.plan, run.cluster.admin
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, rights=REDRIVE.rights(plan))
    topics = {plan.topic: (plan.topic_id, plan.partition_count)}
    topics[plan.target.topic] = (plan.target.topic_id, plan.target.partition_count)
    for one in admin.known_topics([*topics]):
        if (one.topic_id, one.partition_count) != topics[one.name]:
            what = "was deleted and created again" if one.topic_id != topics[one.name][0] else "has other partitions"
            raise PlanStale("topic_changed", f"the topic {one.name!r} {what} since the plan was made", hint=PLAN_AGAIN)
    places = [TopicPartition(topic=plan.topic, partition=own.partition) for own in plan.sources]
    for own, log in zip(plan.sources, admin.list_offsets(places), strict=True):
        if own.ranges[0][0] < (log.log_start_offset or 0):
            text = f"records of {plan.topic}:{own.partition} are gone since the plan was made (retention)"
            raise PlanStale("records_gone", text, hint=PLAN_AGAIN)
    _check_rights(run)
    RedrivenRecords(run).check_not_put_back()


def _check_rights(run: ChangeRun[RedrivePlan]) -> None:
    admin, wanted = run.cluster.admin, REDRIVE.rights(run.plan)
    topics = [acl for acl in wanted if acl.kind == "topic"]
    rights = admin.rights((), dict.fromkeys(acl.name for acl in topics)).topics
    for acl in topics:
        known = rights.get(acl.name)
        if known is not None and acl.operation not in known:
            raise NotAuthorized(acl.operation, f"topic {acl.name!r}")
    Transactions(client_of(admin)).check_right(id_of(run.plan, 0, (0, 0)))


def _rows(run: ChangeRun[RedrivePlan]) -> list[AuditRow]:
    return run.journal.audit({"plan_id": run.plan.plan_id})


def _written(run: ChangeRun[RedrivePlan]) -> OffsetRanges:
    """The numbers of the records that verifications found written."""
    found = OffsetRanges()
    for row in _rows(run):
        if row.event == Event.VERIFIED:
            for first, last in stored_object(row.detail, AUDIT, "detail").get("written", ()):
                found.add(first, last)
    return found


def _count(written: OffsetRanges) -> int:
    return sum(last - first + 1 for first, last in written)


def _left(run: ChangeRun[RedrivePlan]) -> list[Span]:
    """What is to be written, as far as the pace goes."""
    found, most = list[Span](), run.plan.records if run.pace.first is None else run.pace.first
    for first, last in _written(run).outside(0, run.plan.records - 1):
        if most > 0:
            found.append((first, min(last, first + most - 1)))
            most -= last - first + 1
    return found


def _request(run: ChangeRun[RedrivePlan], attempt: int) -> dict[str, Any]:
    """What the audit row before the transactions of an attempt has; empty: there is none."""
    rows = (row for row in _rows(run) if row.event == Event.BEFORE_CALL and row.attempt == attempt)
    return next(({**stored_object(row.detail, AUDIT, "detail"), "at": row.audited_at} for row in rows), {})


def _taken_over(run: ChangeRun[RedrivePlan], one: GroupStatus) -> GroupStatus:
    """The status with a lease of this process: a writer that still lives does not commit from then on."""
    if one.lease is not None and one.lease.is_own:
        return one
    lease = {"expires_at_ms": run.journal.now_ms + 120_000, "pid": os.getpid()}
    run.journal.note([audit_entry(run.plan, one.attempt, Event.LEASE_TAKEN, one.group_id, detail=lease)])
    own = run.journal.standings({"plan_id": run.plan.plan_id})
    return next((each for each in own if each.attempt == one.attempt), one)


def _endings(
    run: ChangeRun[RedrivePlan], attempt: int, request: Mapping[str, Any], stored: RedrivenRecords
) -> tuple[list[Span], bool]:
    """The ranges that an attempt wrote, and whether that is known of all of them."""
    parts = [(a, b) for a, b in request.get("parts", ())]
    ids = {part: id_of(run.plan, attempt, part) for part in parts}
    found = Transactions(client_of(run.cluster.admin)).end_open(ids.values())
    known = stored.numbers
    written = [part for part in parts if found[ids[part]].ending is TransactionEnding.COMMITTED or part[0] in known]
    forgotten = [part for part in parts if found[ids[part]].ending is TransactionEnding.NONE and part not in written]
    return written, not (forgotten and _may_be_forgotten(run, request))


def _may_be_forgotten(run: ChangeRun[RedrivePlan], request: Mapping[str, Any]) -> bool:
    """Whether coordinators may have dropped ids of this attempt, so that one that was committed looks as never begun.
    Without DESCRIBE_CONFIGS on the cluster, Kafka's default is taken."""
    kept_ms = int(broker_config(client_of(run.cluster.admin), _KEPT) or _KEPT_MS)
    return run.journal.now_ms - request["at"].timestamp() * 1_000 > _SURELY * kept_ms
