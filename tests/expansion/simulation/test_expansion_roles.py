"""Controller, broker, log and coordinator of KIP-253 simulated, each by its own rules; together they keep the order by
checks and gates, and break it without them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import InputError
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.gating import Gating
from acktrail_simulation.expansion.key_order import inversions

choices = st.lists(st.integers(0, 2**20), min_size=60, max_size=160)
gates = st.sampled_from((Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE))


def world(partitions: int, gating: Gating, *, checks_count: bool = True) -> ExpansionWorld:
    return ExpansionWorld(WorldShape(partitions=partitions, gating=gating, checks_count=checks_count))


def test_no_expansion_while_a_partition_is_marked() -> None:
    """R003-06: what is marked has to be gone first."""
    life = world(4, Gating.EVERY_SOURCE)
    life.controller.mark_for_deletion(3)
    life.deliver_all()
    with pytest.raises(InputError, match="marked for deletion"):
        life.controller.expand(8)


@given(st.integers(1, 6), gates, choices)
def test_no_key_is_consumed_in_another_order(partitions: int, gating: Gating, steps: list[int]) -> None:
    """R003-03, R003-06, R003-11, R003-21: with the count checked and gates kept, through any sequence of expansions,
    deletions, elections and rebalances, no key of one producer is consumed in another order than it was produced in,
    and nothing waits for good. The KIP's own rule: where each count is a multiple or a divisor of the one before."""
    life = world(partitions, gating)
    for choice in steps:
        life.step(choice)

    assert life.drain()
    assert inversions(life.delivered) == []


@given(st.integers(1, 6), st.sampled_from(Gating), st.booleans(), choices)
def test_counts_and_maps_keep_their_rules(
    partitions: int, gating: Gating, checks_count: bool, steps: list[int]
) -> None:
    """R003-04 to R003-06, R003-09: after each action, undeleted partitions are at most all, no expansion runs while a
    partition is marked, maps name lower partitions with epochs that they have reached, leader epochs never fall."""
    life = world(partitions, gating, checks_count=checks_count)
    controller = life.controller
    for choice in steps:
        before, count = dict(controller.leader_epochs), controller.znode.undeleted_partition_count
        was_marked = bool(controller.marked)
        life.step(choice)
        znode = controller.znode
        assert 0 < znode.undeleted_partition_count <= len(znode.partitions)
        assert not (was_marked and znode.undeleted_partition_count > count)
        for number, epoch in controller.leader_epochs.items():
            assert epoch >= before.get(number, 0)
        for number, each in controller.partitions.items():
            for lower, epoch in (
                *each.leader_epoch_after_creation.items(),
                *each.leader_epoch_before_deletion.items(),
            ):
                assert lower < number
                assert epoch <= controller.leader_epochs.get(lower, epoch)
            assert bool(each.leader_epoch_before_deletion) <= (number >= znode.undeleted_partition_count)


def overtaken(
    partitions: int, new_count: int, gating: Gating, *, checks_count: bool, rounds: int = 6
) -> set[tuple[int, int]]:
    """Records of every key before an expansion and after it, and a group that reads the partitions from above. More
    rounds: fewer records in each. Where a record was overtaken, and where by another one of its key."""
    life = world(partitions, gating, checks_count=checks_count)
    keys = [b"key-%d" % number for number in range(life.shape.keys)]
    for producer in life.producers:
        producer.add(keys)
        assert producer.send(life.brokers, 99)
    life.controller.expand(new_count)
    life.deliver_all()
    stale, fresh = life.producers
    stale.add(keys)
    stale.send(life.brokers, 99)  # with the old count: refused where it is checked
    for producer in (stale, fresh):
        producer.refresh(new_count)
    for producer in (stale, fresh):
        producer.add(keys)
        assert producer.send(life.brokers, 99)
    for _ in range(rounds):
        for partition in reversed(range(new_count)):
            life.fetch_one(partition, 48 // rounds)
        for member in life.members:
            member.heartbeat(life.coordinator)
    assert life.drain()
    return {(each.overtaken.partition, each.early.partition) for each in inversions(life.delivered)}


@pytest.mark.parametrize(("partitions", "new_count"), [(2, 4), (2, 3), (3, 6), (4, 6)])
def test_order_is_kept_by_gates_and_broken_without_them(partitions: int, new_count: int) -> None:
    """R003-02, R003-11: as Kafka is, a group that reads new partitions first consumes keys in another order. The check
    alone does not help; with gates nothing is overtaken."""
    for checks_count in (False, True):
        assert overtaken(partitions, new_count, Gating.NONE, checks_count=checks_count)
    assert not overtaken(partitions, new_count, Gating.EVERY_SOURCE, checks_count=True)


@pytest.mark.parametrize("gating", [Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE])
def test_gates_without_the_check_are_not_enough(gating: Gating) -> None:
    """R003-11: a producer with old metadata writes behind the fence, where gates do not look; its next record is
    consumed first."""
    assert overtaken(2, 4, gating, checks_count=False, rounds=48)


def test_the_rule_of_lower_partitions_has_a_gap() -> None:
    """R003-05: from 2 to 3 keys move between partitions 0 and 1, which the KIP's maps do not show: overtaken there,
    with the check and its gates; not where the count is doubled."""
    assert overtaken(2, 3, Gating.LOWER_PARTITIONS, checks_count=True, rounds=1) == {(0, 1)}
    assert not overtaken(2, 4, Gating.LOWER_PARTITIONS, checks_count=True, rounds=1)
