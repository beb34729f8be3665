"""State partitions and coordinators move between the brokers of a cluster: every offset is in one row."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from faults.conftest import Export, exports, writing
from servers.broker_pair import BrokerPair, broker_pair
from servers.real_broker import kill, restart
from servers.workload import until
from state_topics.filled_topic import STATE_TOPIC

from acktrail.errors import RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset
from acktrail.kafka.client.error_codes import Outcome
from acktrail.tables.delta.store import Tables
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.full]

MOVES: Final = min(int(os.environ.get("ACKTRAIL_FAULTS", "3")), 50)
SEED: Final = int(os.environ.get("ACKTRAIL_SEED", "0")) or random.SystemRandom().randrange(2**32)
LEADERS: Final = [1, 2, 1, 2, 1]
GROUP, WORK = "observed", "work"


@pytest.fixture(scope="module")
def pair() -> Iterator[BrokerPair]:
    with broker_pair({"unclean.leader.election.enable": "true"}) as running:
        running.create_topic(STATE_TOPIC, LEADERS, {"min.insync.replicas": "1"})
        yield running


@pytest.fixture(scope="module")
def broker(pair: BrokerPair) -> EmbeddedBroker:
    """The node that stays."""
    return pair.first


@pytest.fixture(scope="module")
def moved(pair: BrokerPair, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Export]:
    """An export through all the moves, with observations of a share group every second."""
    pair.create_topic(WORK, [1], {})
    with ShareGroupAdmin(broker.config()) as admin:
        until(lambda: makes_group(admin), what="a group and its coordinator")
    observing = {"name": "offsets", "config": {"connector.class": "ShareGroupOffsetsSource", "interval.ms": "1000"}}
    with exports(broker, tmp_path_factory.mktemp("moving")) as opened:
        yield opened(beside=observing)


def makes_group(admin: ShareGroupAdmin) -> bool:
    """Whether the share group of the observations is there now."""
    try:
        (row,) = admin.alter_offsets(GROUP, [NewStartOffset(topic=WORK, partition=0, start_offset=0)])
    except RetryableError:
        return False
    return row.outcome is Outcome.DONE


def test_leaders_and_coordinators_move(moved: Export, pair: BrokerPair, broker: EmbeddedBroker, counts: Any) -> None:
    """Leaders of the state partitions and coordinators move again and again while records are written, one broker stops
    in order, and one is killed: the worker stays, nothing is lost or doubled, and observations continue."""
    chance = random.Random(SEED)
    coordinators = len(pair.leaders("__consumer_offsets"))
    with writing(broker):
        moved.grows()
        for _ in range(MOVES):
            pair.lead(STATE_TOPIC, [chance.choice((1, 2)) for _ in LEADERS])
            pair.lead("__consumer_offsets", [chance.choice((1, 2))] * coordinators)
            moved.grows()
        restart(pair.second)
        pair.lead("__consumer_offsets", [2] * coordinators)
        pair.lead(STATE_TOPIC, LEADERS)
        moved.grows()
        kill(pair.second)
        until(lambda: 2 not in pair.leaders(STATE_TOPIC), what="leaders after a crash")
        moved.grows(50)
        observed = observations(moved)
        until(lambda: observations(moved) >= observed + 4, what="observations by the new coordinator")
        pair.second.start()
    counts(seed=SEED, moves=MOVES, rows=moved.complete(), observations=observations(moved))
    assert moved.worker.runs == 1


def observations(export: Export) -> int:
    """How many times the coordinator described the share group."""
    rows = Tables(export.tables).read("group_observations", columns=["group_id", "error_code"]).to_pylist()
    return sum((row["group_id"], row["error_code"]) == (GROUP, 0) for row in rows)
