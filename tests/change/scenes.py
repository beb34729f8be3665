"""Facts and requests for plans, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from samples.random_records import batches

from acktrail.change.collection.facts import (
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    PartitionState,
    Snapshot,
    TopicFacts,
)
from acktrail.change.planning.change_plan import with_hash
from acktrail.change.planning.reset_plan import ResetPlan, build_plan
from acktrail.change.request.reset_request import ResetRequest, Strategy, StrategyKind, TopicScope
from acktrail.model.batches import StateBatch, combine_state_batches

__all__ = ["CLUSTER", "GROUP", "TOPIC", "a_plan", "a_request", "a_snapshot", "group_facts", "logs", "partition_facts"]

CLUSTER = ClusterFacts(
    cluster_id="c1", release="4.3", resets_share_groups=True, state_topic_id="AQIDBAUGBwgJCgsMDQ4PEA", state_reason=None
)
TOPIC = TopicFacts(
    topic="orders",
    topic_id="AQIDBAUGBwgJCgsMDQ4PEQ",
    partition_count=4,
    is_internal=False,
    rights=("DESCRIBE", "READ"),
    error_code=0,
    error=None,
)


def group_facts(group_id: str = "g", **changes: Any) -> GroupFacts:
    facts = GroupFacts(
        group_id=group_id,
        state="Empty",
        group_epoch=3,
        members=(),
        rights=("DESCRIBE", "READ"),
        error_code=0,
        error=None,
    )
    return replace(facts, **changes)


GROUP = group_facts()


def state(start: int | None, found: tuple[StateBatch, ...] = ()) -> PartitionState:
    return PartitionState(
        state_partition=3,
        record_offset=17,
        snapshot_epoch=2,
        state_epoch=5,
        start_offset=start,
        first_unfinished_offset=start,
        delivery_complete_count=0,
        batches=tuple((b.first_offset, b.last_offset, int(b.delivery_state), b.delivery_count) for b in found),
    )


def partition_facts(
    start: int | None = 40, log: tuple[int, int] = (10, 100), found: tuple[StateBatch, ...] = (), **changes: Any
) -> PartitionFacts:
    facts = PartitionFacts(
        group_id="g",
        topic="orders",
        topic_id=TOPIC.topic_id,
        partition=0,
        partition_count=TOPIC.partition_count,
        log_start_offset=log[0],
        log_end_offset=log[1],
        log_error=None,
        is_described=True,
        start_offset=start,
        state=state(start, found),
        state_reason=None,
    )
    return replace(facts, **changes)


@st.composite
def logs(draw: st.DrawFn) -> PartitionFacts:
    """A share partition with few records: log, start offset anywhere, state above it as a broker keeps it."""
    log_start = draw(st.integers(0, 12))
    log_end = draw(st.integers(log_start, 40))
    start = draw(st.one_of(st.none(), st.integers(0, 50)))
    found = () if start is None else combine_state_batches(draw(batches()), (), start)
    return partition_facts(start, (log_start, log_end), found)


def a_request(kind: StrategyKind = StrategyKind.TO_EARLIEST, **changes: Any) -> ResetRequest:
    strategy = changes.pop("strategy", Strategy(kind=kind, **{k: changes.pop(k) for k in ("number",) if k in changes}))
    request = ResetRequest(strategy=strategy, groups=("g",), topics=(TopicScope(topic="orders"),))
    return replace(request, **changes)


def a_snapshot(*partitions: PartitionFacts, **changes: Any) -> Snapshot:
    snapshot = Snapshot(
        taken_at_ms=1_700_000_000_000,
        cluster=CLUSTER,
        groups=(GROUP,),
        topics=(TOPIC,),
        partitions=partitions or (partition_facts(),),
    )
    return replace(snapshot, **changes)


def a_plan(request: ResetRequest | None = None, snapshot: Snapshot | None = None) -> ResetPlan:
    return with_hash(
        build_plan(
            request or a_request(),
            snapshot or a_snapshot(),
            plan_id="p1",
            created_by="somebody@here",
        )
    )
