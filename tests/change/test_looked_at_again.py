"""What became of a reset is looked for after its records were pruned. On real brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from change.world import TOPIC, World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from servers.workload import until

from acktrail.config import TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.full]

RECORDS, WORKED = 20, 9
STATE_PARTITIONS = 50

SHORT_MEMORY = {
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.snapshot.update.records.per.snapshot": "6",
    "share.coordinator.state.topic.prune.interval.ms": "500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "86400000",
}
"""Seven updates make a snapshot, and what lies before it is gone soon after."""


@dataclass
class Forgetful(World):
    """A broker that prunes its state topic, and groups that share no state partition: none holds back another's."""

    used: set[int] = field(default_factory=set)

    def group(self, suffix: str = "") -> str:
        for number in range(10_000):
            name = f"g{number}{suffix}"
            partition = self.state_partition(name)
            if partition not in self.used:
                self.used.add(partition)
                return name
        raise AssertionError("no state partition is left")

    def state_partition(self, group: str) -> int:
        with ShareGroupAdmin(self.kafka) as admin:
            topic_id = admin.topics([TOPIC])[0].topic_id
        key = SharePartition(group_id=GroupId(group), topic_id=TopicId(topic_id or ""), partition=0)
        return state_partition_of(key, STATE_PARTITIONS)

    def log(self, group: str) -> tuple[int, int]:
        """Start and end of the log that has the group's state."""
        partition = self.state_partition(group)
        with ShareGroupAdmin(self.kafka) as admin:
            found = StateTopic(admin).log_offsets({partition})[partition]
        return found.log_start_offset or 0, found.last_stable_offset or 0

    def work(self, group: str, records: int, keep: int | None = None, after: Callable[[], Any] = lambda: None) -> None:
        """The group acknowledges `records` records, each in a write of its own with `after` it, but not the one at
        offset `keep`."""
        left, deadline = records, time.monotonic() + 240
        with self.workload.share_consumer(group, TOPIC, **{"share.acknowledgement.mode": "explicit"}) as consumer:
            while left:
                assert time.monotonic() < deadline, f"{left} of {records} records are missing"
                for message in consumer.poll(0.2) or ():
                    is_kept = message.offset() == keep or not left
                    consumer.acknowledge(message, AcknowledgeType.RELEASE if is_kept else AcknowledgeType.ACCEPT)
                    if not is_kept:
                        consumer.commit_sync()
                        after()
                        left -= 1
                consumer.commit_sync()
        self.wait_empty(group)


@pytest.fixture(params=["4.4.0", "4.3.1"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forgetful]:
    with EmbeddedBroker(request.param, properties=SHORT_MEMORY) as broker:
        made = Forgetful.at(broker.config(), tmp_path / "reset")
        made.make_topic(TOPIC, 1, RECORDS)
        yield made


def test_a_reset_is_not_called_overwritten_because_its_records_are_pruned(
    world: Forgetful, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sent and not verified, then the group works and the records are pruned: unknown, never overwritten; done where
    the tables have kept the records. What nobody can say keeps nobody from the next plan."""
    exported = World(world.kafka, TablesConfig(uri=str(tmp_path / "exported")))
    answered, kept = (world.group() for _ in range(2))
    plans: dict[str, dict[str, Any]] = {}
    for group in (answered, kept):
        world.work(group, 2, keep=0)
        one = exported if group == kept else world
        plans[group] = one.earliest(group, strategies={"to-offset": "4"}, allow_skip=True)
    world.execute(plans[answered])
    assert exported.interrupted("after", signal.SIGKILL, plans[kept]["plan_id"])[0] == -signal.SIGKILL
    ends = {group: world.log(group)[1] for group in plans}

    def export() -> None:
        assert command_line.run(capsys, "run", "export", "--state-only", *exported.arguments()).code == 0

    export()
    world.work(kept, WORKED, after=export)
    world.work(answered, WORKED)
    for group, end in ends.items():
        until(lambda group=group, end=end: world.log(group)[0] > end, what=f"{group} to be pruned")
    found = {
        group: {row["status"] for row in (exported if group == kept else world).verify(plan, wait_s=0)}
        for group, plan in plans.items()
    }
    assert found == {answered: {"UNKNOWN"}, kept: {"OK"}}
    assert world.standing(plans[answered]["plan_id"]) == "UNKNOWN"
    world.reset(groups=[answered], topics=[TOPIC], strategies={"to-earliest": None})
