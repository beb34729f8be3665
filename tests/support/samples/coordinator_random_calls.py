"""Random lives of a simulated share coordinator: calls that pass and calls that are refused, jobs, time."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from jobs.world import batch

from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
)

__all__ = ["COLD_AFTER_MS", "KEYS", "TOPICS", "TOPIC_IDS", "Step", "coordinator", "requests", "scripts", "take"]

TOPIC_IDS = (TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), TopicId("EBESExQVFhcYGRobHB0eHw"))
TOPICS = {TOPIC_IDS[0]: 2, TOPIC_IDS[1]: 1}
KEYS = tuple(
    SharePartition(group_id=GroupId(group), topic_id=topic_id, partition=partition)
    for group, topic_id, partition in (("g", TOPIC_IDS[0], 0), ("h:x", TOPIC_IDS[0], 1), ("g", TOPIC_IDS[1], 0))
)
COLD_AFTER_MS = 50

Step = PersisterRequest | str | int
"""A call; ``cold``, ``prune`` or ``topic`` (the second topic is deleted); or milliseconds that pass."""

_offsets = st.integers(0, 30)
_epochs = st.one_of(st.integers(0, 3), st.integers(0, 3), st.none())
_passing_epochs = st.sampled_from((9, 9, 9, 9, 9, 9, 2, None))
"""A write with an epoch that is higher than any seen is taken, and the epoch is not kept."""


@st.composite
def _batches(draw: st.DrawFn) -> tuple[StateBatch, ...]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        first = draw(_offsets)
        last = first + draw(st.integers(0, 6))
        found.append(batch(first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(1, 4))))
    return tuple(found)


@st.composite
def requests(draw: st.DrawFn) -> PersisterRequest:
    """Any call about one of a few share partitions, some with low epochs, some for a partition that is not there."""
    key = draw(st.sampled_from(KEYS))
    if draw(st.integers(0, 19)) == 0:
        key = SharePartition(group_id=key.group_id, topic_id=key.topic_id, partition=draw(st.sampled_from((-1, 5))))
    kind = draw(st.sampled_from(("write",) * 9 + ("read", "read", "initialize", "delete", "summary")))
    builders: dict[str, Callable[[], PersisterRequest]] = {
        "write": lambda: StateWrite(
            key=key,
            state_epoch=draw(_passing_epochs),
            leader_epoch=draw(_passing_epochs),
            start_offset=draw(st.one_of(st.none(), _offsets, _offsets)),
            delivery_complete_count=draw(st.one_of(st.none(), st.integers(0, 9))),
            batches=draw(_batches()),
        ),
        "read": lambda: StateRead(key=key, leader_epoch=draw(_epochs)),
        "initialize": lambda: StateInitialize(
            key=key, state_epoch=draw(_epochs), start_offset=draw(st.one_of(st.none(), _offsets))
        ),
        "delete": lambda: StateDelete(key=key),
        "summary": lambda: StateSummary(key=key),
    }
    return builders[kind]()


def scripts(*, most: int = 25, prune: bool = True) -> st.SearchStrategy[list[Step]]:
    """What happens to a coordinator, step by step; every key is initialized first."""
    jobs = ["cold", "topic"] + ["prune"] * prune
    opening: list[Step] = [StateInitialize(key=key, state_epoch=0, start_offset=None) for key in KEYS]
    step: st.SearchStrategy[Step] = st.one_of(
        *[requests()] * 12, st.sampled_from(jobs), st.integers(0, 2 * COLD_AFTER_MS)
    )
    return st.lists(step, min_size=most // 2, max_size=most).map(lambda steps: opening + steps)


def coordinator(*, limit: int = 2, rules: CoordinatorRules = KAFKA_4_4) -> ShareCoordinator:
    """A coordinator without records, in a cluster with two topics."""
    return ShareCoordinator(
        partition_counts=dict(TOPICS),
        clock=SimulatedClock(),
        rules=rules,
        updates_per_snapshot=limit,
        cold_after_ms=COLD_AFTER_MS,
    )


def take(found: ShareCoordinator, step: Step) -> None:
    """Let one step happen."""
    if isinstance(step, int):
        found.clock.advance(step)
    elif step == "cold":
        found.snapshot_cold()
    elif step == "prune":
        found.prune()
    elif step == "topic":
        found.partition_counts = {TOPIC_IDS[0]: 2}
        found.forget_topics(TOPIC_IDS[1:])
    elif not isinstance(step, str):
        found.answer(step)
