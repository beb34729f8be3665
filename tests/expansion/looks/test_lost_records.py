"""What leaders say of the epochs before theirs, and the loss of records that this shows, on real brokers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from broker.workload import Workload, until
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions
from servers.broker_pair import BrokerPair, broker_pair
from servers.real_broker import kill, restart

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.executors import InProcess
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.audit_run import audit_expansions
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.law.partition_ledger import FenceGap
from acktrail_expansion.law.verdict import NotProven, OrderVerdict
from acktrail_expansion.looks.partition_listing import list_partitions
from acktrail_expansion.looks.partition_observation import observe_partitions
from acktrail_expansion.looks.stored_look import take_look
from acktrail_expansion.quality.expansion_gate import check_expansions

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, GROUP = "lossy", "readers"


@pytest.fixture(scope="module")
def pair() -> Iterator[BrokerPair]:
    with broker_pair({"unclean.leader.election.enable": "true"}) as running:
        running.create_topic(TOPIC, [2, 1], {"min.insync.replicas": "1"})
        yield running


def commit(pair: BrokerPair, positions: dict[int, int]) -> None:
    """Where the group is."""
    places = [TopicPartition(TOPIC, number, offset) for number, offset in positions.items()]
    request = ConsumerGroupTopicPartitions(GROUP, places)
    asked = pair.admin
    for future in asked.alter_consumer_group_offsets([request]).values():
        future.result(60)


def loses_its_end(pair: BrokerPair, workload: Workload) -> None:
    """The leader of partition 0 ends with records that no other node has; the other one leads, and gets more."""
    kill(pair.second)
    until(lambda: pair.leaders(TOPIC) == [1, 1], what="a leader without the records")
    workload.produce(TOPIC, 40, 0)
    pair.second.start()
    pair.link.come_back()


def expand(pair: BrokerPair, admin: ShareGroupAdmin) -> None:
    """To three partitions, as all brokers list them."""

    def is_everywhere() -> bool:
        listed = [list_partitions(client_of(admin), [TOPIC], node_id=node_id) for node_id in (1, 2)]
        return [topic.partition_count for (topic,) in listed] == [3, 3]

    until(lambda: {1, 2} <= pair.admin.list_topics(timeout=30).brokers.keys(), what="both brokers")
    asked = pair.admin
    for future in asked.create_partitions([NewPartitions(TOPIC, 3)]).values():
        future.result(60)
    client_of(admin).metadata([])
    until(is_everywhere, what="three partitions")


def rows_of(tables: Tables, name: str) -> dict[int, dict[str, Any]]:
    return {row["partition"]: row for row in tables.rows(name)}


@pytest.mark.full
def test_a_leader_knows_where_the_epoch_before_it_ended() -> None:
    """A look after an election has the epoch of the look before, and the end that it saw; a first leader has none."""
    with EmbeddedBroker() as broker:
        workload = Workload(broker.config())
        workload.create_topic("led", 2)
        workload.produce("led", 5, 0)
        found: list[list[dict[str, Any]]] = []
        for run_id in ("before", "after"):
            with ShareGroupAdmin(broker.config()) as admin:
                look = observe_partitions(admin, run_id=run_id, topics=["led"]).rows["partition_observations"]
            found.append(look.to_pylist())
            if run_id == "before":
                restart(broker)
                workload.produce("led", 3, 0)
    before, after = found

    assert [(row["leader_epoch"], row["ended_epoch"], row["epoch_end_offset"]) for row in before] == [
        (0, None, None)
    ] * 2
    assert [row["leader_epoch"] > 0 for row in after] == [True, True]
    assert (after[0]["ended_epoch"], after[0]["epoch_end_offset"], after[0]["log_end_offset"]) == (0, 5, 8)
    assert (after[1]["epoch_end_offset"], after[1]["log_end_offset"]) == (0, 0)


@pytest.mark.full
def test_a_log_that_lost_records_and_grew_again_is_never_safe(pair: BrokerPair, tmp_path: Path) -> None:
    """R003-09, R003-19: its end lies above what was there before, so only the leader epochs show the loss. Nothing is
    proven of the group that reads everything in order, as the log has no fence; the partition beside it has one. The
    expectation on epochs names that partition alone."""
    config, workload = TablesConfig(uri=str(tmp_path)), Workload(pair.first.config())
    with ShareGroupAdmin(pair.first.config()) as admin:

        def look(positions: dict[int, int]) -> None:
            commit(pair, positions)
            take_look(admin, config, topics=[TOPIC])

        workload.produce(TOPIC, 40, 0)
        workload.produce(TOPIC, 40, 1)
        pair.link.go_down()
        workload.produce(TOPIC, 20, 0)
        look({0: 60, 1: 40})
        loses_its_end(pair, workload)
        expand(pair, admin)
        look({0: 80, 1: 40})
        workload.produce(TOPIC, 9, 2)
        look({2: 4})
        look({2: 9})
    mapping = KeyMapping.MURMUR2
    audit_expansions(
        config, lambda _rows: nullcontext(InProcess()), settle=dt.timedelta(), mapping_of=lambda _topic: mapping
    )

    fences, verdicts = rows_of(Tables(config), "expansion_fences"), rows_of(Tables(config), "expansion_verdicts")
    assert (fences[0]["fence_low"], fences[0]["fence_high"], fences[0]["reason"]) == (None, None, FenceGap.TRUNCATED)
    assert (fences[1]["fence_low"], fences[1]["fence_high"], fences[1]["reason"]) == (40, 40, None)
    found = {verdicts[2][name] for name in ("verdict", "reason", "source_partition")}
    assert found == {OrderVerdict.NOT_PROVEN, NotProven.NO_FENCE, 0}
    results = {each.expectation: each for each in check_expansions(Tables(config)).results}
    assert f"{TOPIC}/0," in str(results["log_kept_records"].observed_value)
