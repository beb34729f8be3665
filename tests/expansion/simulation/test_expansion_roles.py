"""Controller, broker, log and coordinator of KIP-253 simulated, each by its own rules; together they keep the order by
checks and gates, and break it without them."""

from __future__ import annotations

from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.errors import InputError, RetryableError
from acktrail_expansion.law.order import KeyMapping
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.expansion.epoch_log import EpochLog
from acktrail_simulation.expansion.expansion_broker import ExpansionBroker
from acktrail_simulation.expansion.expansion_controller import ExpansionController
from acktrail_simulation.expansion.expansion_messages import (
    EpochsTopic,
    HeartbeatPartition,
    HeartbeatRequest,
    HeartbeatTopic,
    KeyedRecord,
    LeaderEpochsForPartitionsRequest,
)
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.gating import Gating, sources_of
from acktrail_simulation.expansion.key_order import inversions
from acktrail_simulation.expansion.key_partitions import murmur2
from acktrail_simulation.expansion.position_exchange import PositionExchange

KIP = SEED["kip253"]


def numbered(found: dict[str, Any]) -> dict[int, Any]:
    return {int(number): value for number, value in found.items()}


def controller(partitions: int) -> tuple[ExpansionController, list[ExpansionBroker]]:
    found = ExpansionController(topic="t", broker_count=2)
    brokers = [ExpansionBroker(checks_count=True) for _ in range(2)]
    found.expand(partitions)
    answered(found, brokers)
    return found, brokers


def answered(found: ExpansionController, brokers: list[ExpansionBroker]) -> None:
    while found.outbox:
        broker, request = found.outbox.pop()
        assert set(brokers[broker].leader_and_isr(request).values()) == {ErrorCode.NONE}
        found.answered()


def test_the_worked_example_of_the_controller() -> None:
    """R003-05, R003-09, R003-10, R003-19, R003-20: epochs and maps of an expansion from 2 to 4, for members."""
    case = KIP["controller_model"]
    found, brokers = controller(case["before"]["partitions"])
    for number, epoch in numbered(case["before"]["leader_epoch"]).items():
        for _ in range(epoch):
            found.elect(number)
            answered(found, brokers)
    assert found.leader_epochs == numbered(case["before"]["leader_epoch"])
    found.expand(case["expand_to"])
    answered(found, brokers)

    assert found.leader_epochs == numbered(case["after_leader_epoch"])
    for number, epochs in numbered(case["leaderEpochAfterCreation"]).items():
        assert found.partitions[number].to_json()["leaderEpochAfterCreation"] == epochs
        asked = LeaderEpochsForPartitionsRequest(topics=(EpochsTopic(topic="t", partitions=(number,)),))
        creation, deletion = found.leader_epochs_for(asked).topics
        assert {each.partition: each.leader_epoch for each in creation.partitions} == numbered(epochs)
        assert deletion.partitions == ()
    assert [broker.partition_count for broker in brokers] == [4, 4]


def test_fences_are_starts_of_epochs() -> None:
    """R003-05, R003-21: the worked example of fences: the end of the epoch before the one in the map."""
    case = KIP["fence_example"]
    for number, starts in numbered(case["epoch_start_offsets"]).items():
        log = EpochLog()
        for epoch, start in starts:
            log.append([KeyedRecord(producer=0, sequence=0, key=b"k")] * (start - log.end_offset))
            log.begin(epoch)
        log.append([KeyedRecord(producer=0, sequence=0, key=b"k")] * 10)
        created = numbered(KIP["controller_model"]["leaderEpochAfterCreation"]["2"])[number]
        assert log.end_of_epoch(created - 1) == case["fence"][str(number)]
        assert log.end_of_epoch(99) == log.end_offset
        assert log.end_of_epoch(-1) == 0
        assert log.epoch_at(log.end_offset - 1) == starts[-1][0]
    with pytest.raises(InputError, match="does not follow"):
        log.begin(0)


def test_new_partitions_come_after_all_answers() -> None:
    """R003-06, R003-08: partitions that are there get a higher epoch first, and while one leader has not answered, no
    new partition has a znode and nothing else begins; then they are announced. The topic's znode is first of all."""
    found, brokers = controller(3)
    found.expand(5)
    assert found.znode.undeleted_partition_count == 5
    assert sorted(found.partitions) == [0, 1, 2]
    assert len(found.outbox) == 2
    with pytest.raises(RetryableError, match="waits for 2 answers"):
        found.expand(6)
    broker, request = found.outbox.pop()
    brokers[broker].leader_and_isr(request)
    found.answered()
    assert sorted(found.partitions) == [0, 1, 2]
    answered(found, brokers)
    assert sorted(found.partitions) == [0, 1, 2, 3, 4]
    assert {number: log.epochs for broker in brokers for number, log in broker.logs.items()} == {
        0: [0, 1],
        1: [0, 1],
        2: [0, 1],
        3: [0],
        4: [0],
    }


def test_no_expansion_while_a_partition_is_marked() -> None:
    """R003-06: the maps of marked partitions hold the epochs from before; expansion waits until all are gone; a marked
    partition may be followed by another one."""
    found, brokers = controller(4)
    found.mark_for_deletion(3)
    answered(found, brokers)
    found.mark_for_deletion(2)
    answered(found, brokers)
    maps = {number: found.partitions[number].leader_epoch_before_deletion for number in (2, 3)}
    assert maps == {2: {0: 1, 1: 1}, 3: {0: 0, 1: 0, 2: 0}}
    with pytest.raises(InputError, match="marked for deletion: 2 and above"):
        found.expand(8)
    found.remove(3)
    with pytest.raises(InputError, match="marked for deletion"):
        found.expand(8)
    with pytest.raises(InputError, match="not marked"):
        found.remove(0)
    found.remove(2)
    del brokers[0].logs[2], brokers[1].logs[3]
    found.expand(8)
    answered(found, brokers)
    assert found.partitions[7].leader_epoch_after_creation == {0: 3, 1: 3, **dict.fromkeys(range(2, 7), 0)}


def test_an_old_leader_epoch_is_fenced() -> None:
    """R003-08: the same request twice changes nothing the second time."""
    found, brokers = controller(2)
    found.elect(0)
    broker, request = found.outbox[0]
    assert brokers[broker].leader_and_isr(request) == {0: ErrorCode.NONE}
    assert brokers[broker].leader_and_isr(request) == {0: ErrorCode.FENCED_LEADER_EPOCH}
    assert brokers[broker].logs[0].epochs == [0, 1]


def beat(exchange: PositionExchange, member: str, *entries: HeartbeatPartition) -> list[tuple[int, bool, int]]:
    topics = (HeartbeatTopic(topic="t", partitions=entries),) if entries else ()
    answer = exchange.heartbeat(
        HeartbeatRequest(group_id="g", generation_id=exchange.generation, member_id=member, topics=topics)
    )
    assert answer.error_code == ErrorCode.NONE
    return [(p.partition, p.need_position, p.position) for topic in answer.topics for p in topic.partitions]


def test_positions_travel_through_heartbeats() -> None:
    """R003-13 to R003-18: one asks, the owner is asked with its next answer, sends its position with the next request
    but one, and the first one gets it: three heartbeats after the question."""
    exchange = PositionExchange(topic="t")
    exchange.assign({0: "a", 1: "b"})
    question = HeartbeatPartition(partition=0, need_position=True)

    assert beat(exchange, "b", question) == [(0, False, -1)]
    assert beat(exchange, "a") == [(0, True, -1)]
    assert beat(exchange, "a", HeartbeatPartition(partition=0, need_position=False, position=7)) == []
    assert beat(exchange, "b", question) == [(0, False, 7)]
    assert beat(exchange, "a") == [(0, True, -1)]
    beat(exchange, "a", HeartbeatPartition(partition=0, need_position=False, position=5))
    assert exchange.positions == {0: 7}
    assert exchange.entries == 8


def test_a_member_of_an_older_generation_is_refused() -> None:
    """R003-16: its positions change nothing."""
    exchange = PositionExchange(topic="t")
    exchange.assign({0: "a"})
    request = HeartbeatRequest(group_id="g", generation_id=0, member_id="a", topics=())
    assert exchange.heartbeat(request).error_code == ErrorCode.INVALID_REQUEST


def test_what_each_rule_waits_for() -> None:
    """R003-21: nothing; every lower partition at its bumped epoch; the sources of keys alone, of new and old
    partitions, also over two expansions."""
    found, brokers = controller(2)
    found.expand(3)
    answered(found, brokers)
    rules = {gating: sources_of(gating, found, KeyMapping.MURMUR2, 2, 0) for gating in Gating}
    assert rules == {Gating.NONE: {}, Gating.LOWER_PARTITIONS: {0: 1, 1: 1}, Gating.EVERY_SOURCE: {0: 1, 1: 1}}
    assert sources_of(Gating.LOWER_PARTITIONS, found, KeyMapping.MURMUR2, 0, 1) == {}
    assert sources_of(Gating.EVERY_SOURCE, found, KeyMapping.MURMUR2, 0, 1) == {1: 1}
    assert sources_of(Gating.EVERY_SOURCE, found, KeyMapping.MURMUR2, 0, 0) == {}
    found.expand(6)
    answered(found, brokers)
    assert sources_of(Gating.EVERY_SOURCE, found, KeyMapping.MURMUR2, 3, 0) == {0: 2, 1: 1}
    assert sources_of(Gating.LOWER_PARTITIONS, found, KeyMapping.MURMUR2, 3, 0) == {0: 2, 1: 2, 2: 1}


choices = st.lists(st.integers(0, 2**20), min_size=60, max_size=160)
gates = st.sampled_from((Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE))


def world(partitions: int, gating: Gating, *, checks_count: bool = True) -> ExpansionWorld:
    return ExpansionWorld(WorldShape(partitions=partitions, gating=gating, checks_count=checks_count))


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


def test_two_expansions_need_the_fences_of_both() -> None:
    """R003-02: from 4 to 6 to 9 a key moves from 0 past 4, where it leaves no record, to 1. Each expansion's own audit
    has nothing against it, and its record in 0 is overtaken; gates over all changes hold it back."""
    key = next(b"%d" % n for n in range(10**5) if [murmur(n) % c for c in (4, 6, 9)] == [0, 4, 1])
    outcomes = {}
    for gating in (Gating.NONE, Gating.EVERY_SOURCE):
        life = world(4, gating)
        producer = life.producers[0]
        producer.add([key])
        assert producer.send(life.brokers, 9)
        for count in (6, 9):
            life.controller.expand(count)
            life.deliver_all()
        producer.refresh(9)
        producer.add([key])
        assert producer.send(life.brokers, 9)
        life.fetch_one(1, 9)
        assert life.drain()
        outcomes[gating] = [(each.overtaken.partition, each.early.partition) for each in inversions(life.delivered)]
    assert outcomes == {Gating.NONE: [(0, 1)], Gating.EVERY_SOURCE: []}
    assert 1 % gcd(6, 9) != 0 % gcd(6, 9), "the second expansion alone moves no key from 0 to 1"


def murmur(number: int) -> int:
    return murmur2(b"%d" % number) & 0x7FFFFFFF
