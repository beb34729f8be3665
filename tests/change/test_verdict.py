"""What the state topic shows of a reset, and what of a plan is still true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from change.scenes import CLUSTER, TOPIC, a_plan, a_snapshot, group_facts, partition_facts, state
from samples.golden_vectors import SEED

from acktrail.change.collection.facts import PartitionState, Snapshot
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.planning.reset_plan import changes_since_plan
from acktrail.change.verification.partition_outcome import (
    GroupNow,
    ResetEvidence,
    ResetOutcome,
    judge,
)
from acktrail.kafka.changes import Outcome
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEQ"), partition=0)
BATCH = StateBatch(first_offset=50, last_offset=59, delivery_state=2, delivery_count=1)
BEFORE = replace(state(40, (BATCH,)), snapshot_epoch=4, state_epoch=9)


def snapshot(start: int | None, *, epoch: int = 5, state_epoch: int = 9, **changes: Any) -> ShareSnapshot:
    made = ShareSnapshot(
        key=KEY,
        snapshot_epoch=epoch,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=0,
        create_timestamp_ms=7,
        write_timestamp_ms=7,
        batches=(),
    )
    return replace(made, **changes)


def update(start: int | None, *batches: StateBatch) -> ShareUpdate:
    return ShareUpdate(
        key=KEY, snapshot_epoch=5, leader_epoch=0, start_offset=start, delivery_complete_count=0, batches=batches
    )


def found(*records: StateRecord, outcome: Outcome = Outcome.DONE, target: int = 10, **named: Any) -> ResetOutcome:
    seen = [((3, 100 + index), record) for index, record in enumerate(records)]
    case = ResetEvidence(
        target=target, outcome=outcome, before=BEFORE, records=seen, group=GroupNow(has_members=False, epoch=9)
    )
    return judge(replace(case, **named))


@pytest.mark.parametrize("vector", SEED["alter_share_group_offsets"]["persistence_check_vectors"])
def test_the_seeds_vectors(vector: dict[str, Any]) -> None:
    """R004-27, R004-28: judged by the state before and after alone, each vector has its verdict."""

    def facts(side: dict[str, int]) -> PartitionState:
        batches = tuple(
            replace(BATCH, first_offset=200 + 10 * n, last_offset=205 + 10 * n) for n in range(side["batches"])
        )
        made = state(side["StartOffset"], batches)
        return replace(made, snapshot_epoch=side["SnapshotEpoch"], state_epoch=side["StateEpoch"])

    before, after = facts(vector["before"]), facts(vector["after"])
    group = GroupNow(has_members=False, epoch=after.state_epoch)
    case = ResetEvidence(
        target=vector["target"], outcome=Outcome.DONE, before=before, now=after, is_complete=False, group=group
    )
    finding = judge(case)
    assert finding.status == vector["verdict"]


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (found(snapshot(10)), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10, state_epoch=10)), Status.OK),
        (found(snapshot(10, state_epoch=8)), Status.EPOCH_WENT_BACK),
        (found(snapshot(10, epoch=0), before=None), Status.OK),
        (found(snapshot(10, delivery_complete_count=None)), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10), snapshot(10, epoch=6, write_timestamp_ms=99)), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10), update(None)), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10), update(10)), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10), update(40)), Status.OVERWRITTEN_AFTER_RESET),
        (found(snapshot(10), update(10, BATCH)), Status.OVERWRITTEN_AFTER_RESET),
        (found(snapshot(10), Tombstone(key=KEY)), Status.OVERWRITTEN_AFTER_RESET),
        (found(snapshot(10), snapshot(-1 + 1, epoch=6)), Status.OVERWRITTEN_AFTER_RESET),
        (found(), Status.NOT_PERSISTED),
        (found(snapshot(11)), Status.NOT_PERSISTED),
        (found(snapshot(10, epoch=4)), Status.NOT_PERSISTED),
        (found(snapshot(10, leader_epoch=1)), Status.NOT_PERSISTED),
        (found(snapshot(10, write_timestamp_ms=8)), Status.NOT_PERSISTED),
        (found(snapshot(10, batches=(BATCH,))), Status.NOT_PERSISTED),
        (found(update(10)), Status.NOT_PERSISTED),
        (found(outcome=Outcome.REFUSED), Status.FAILED),
        (found(outcome=Outcome.NOT_ATTEMPTED), Status.NOT_ATTEMPTED),
        (found(outcome=Outcome.UNKNOWN), Status.UNKNOWN),
        (found(snapshot(10), outcome=Outcome.UNKNOWN), Status.OK_EPOCH_NOT_BUMPED),
        (found(snapshot(10), outcome=Outcome.NOT_ATTEMPTED), Status.OK_EPOCH_NOT_BUMPED),
    ],
)
def test_the_records_decide(finding: ResetOutcome, status: Status) -> None:
    """R004-28, R002-05: done is what the state topic shows, whatever was answered; a later record of another content
    overwrote it; what a quiet shard writes again is no change."""
    assert finding.status is status
    assert (finding.evidence is not None) == (
        status.is_ok or status in (Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK)
    )


def test_without_the_records_an_unknown_outcome_stays_unknown() -> None:
    """Pruned before anybody looked: another state says nothing about the reset, and the same state does not say that
    the request does not arrive any more."""
    other = replace(state(77), snapshot_epoch=6, state_epoch=9)
    case = ResetEvidence(target=10, outcome=Outcome.UNKNOWN, before=BEFORE, is_complete=False)
    assert judge(replace(case, now=other)).status is Status.UNKNOWN
    assert judge(replace(case, now=replace(BEFORE, snapshot_epoch=9))).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.DONE, Status.OK_EPOCH_NOT_BUMPED),
        (Outcome.UNKNOWN, Status.UNKNOWN),
        (Outcome.NOT_ATTEMPTED, Status.UNKNOWN),
        (Outcome.REFUSED, Status.FAILED),
    ],
)
def test_the_work_of_an_unanswered_request_is_no_other_plans(outcome: Outcome, status: Status) -> None:
    """Two plans ask for the same, and the first one got no answer: only the broker's word makes it the second one's."""
    assert found(snapshot(10), outcome=outcome, rival="p1").status is status
    now = replace(state(10), snapshot_epoch=6, state_epoch=9)
    assert found(outcome=outcome, rival="p1", is_complete=False, now=now).status is status


PLAN = a_plan()
(ROW,) = PLAN.partitions


@pytest.mark.parametrize(
    ("rule", "now"),
    [
        ("other_cluster", a_snapshot(cluster=replace(CLUSTER, cluster_id="c2"))),
        ("state_topic_changed", a_snapshot(cluster=replace(CLUSTER, state_topic_id="AQIDBAUGBwgJCgsMDQ4PFA"))),
        ("group_not_empty", a_snapshot(groups=(group_facts(members=("late",)),))),
        ("group_changed", a_snapshot(groups=(group_facts(error_code=69, error="X"),))),
        ("topic_recreated", a_snapshot(topics=(replace(TOPIC, topic_id="AQIDBAUGBwgJCgsMDQ4PFA"),))),
        ("unknown_topic", a_snapshot(topics=(replace(TOPIC, topic_id=None, error_code=3),))),
        ("partition_count_changed", a_snapshot(topics=(replace(TOPIC, partition_count=5),))),
        ("log_start_moved", a_snapshot(partition_facts(40, (11, 100)))),
        ("log_truncated", a_snapshot(partition_facts(40, (0, 9)))),
        ("log_unknown", a_snapshot(partition_facts(log_end_offset=None))),
        ("start_offset_moved", a_snapshot(partition_facts(41))),
        ("state_moved", a_snapshot(partition_facts(40, found=(BATCH,)))),
        ("state_moved", a_snapshot(partition_facts(40, state=replace(state(40), state_epoch=6)))),
        ("state_moved", a_snapshot(partition_facts(40, state=None, state_reason="X"))),
    ],
)
def test_what_moved_makes_a_plan_stale(rule: str, now: Snapshot) -> None:
    """R004-26, R004-30: members, topic ids, partition counts, start offsets, state, the log: each has its rule."""
    assert {notice.rule for notice in changes_since_plan(PLAN, PLAN.partitions, now)} == {rule}


@pytest.mark.parametrize(
    "now",
    [
        a_snapshot(),
        a_snapshot(partition_facts(40, (10, 5000))),
        a_snapshot(partition_facts(40, state=replace(state(40), snapshot_epoch=9, record_offset=99))),
        a_snapshot(groups=(group_facts(group_epoch=99),)),
    ],
)
def test_what_does_not_matter_keeps_a_plan(now: Snapshot) -> None:
    """New records, a snapshot of the same state, another leader, another group epoch: the plan's numbers still hold."""
    assert changes_since_plan(PLAN, PLAN.partitions, now) == ()
    assert ROW.share_partition == KEY
