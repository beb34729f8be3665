"""What became of a reset is found out late, twice, and after its records were pruned. On real brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from change.world import TOPIC, World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from servers.kafka_proxy import kafka_proxy
from servers.real_broker import releases
from servers.workload import until

from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.integrity import checked_audit
from acktrail.change.audit.journal import read_audit
from acktrail.change.execution.execute_reset import raise_unless_ok
from acktrail.config import TablesConfig
from acktrail.errors import OutcomeUnknown, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS, TARGET, WORKED = 20, 4, 9
STATE_PARTITIONS = 50
ALTER = 91

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

    def log_start(self, group: str) -> int:
        return self._log(group).log_start_offset or 0

    def log_end(self, group: str) -> int:
        return self._log(group).last_stable_offset or 0

    def _log(self, group: str) -> Any:
        partition = self.state_partition(group)
        with ShareGroupAdmin(self.kafka) as admin:
            return StateTopic(admin).log_offsets({partition})[partition]

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


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1"))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    with EmbeddedBroker(request.param, properties=SHORT_MEMORY) as broker:
        made = Forgetful.at(broker.config(), tmp_path_factory.mktemp("reset"))
        made.make_topic(TOPIC, 1, RECORDS)
        yield made


@contextmanager
def unanswered(world: World, plan: dict[str, Any]) -> Iterator[None]:
    """A plan whose request the network holds back until the end of the block: nobody knows what becomes of it."""
    with kafka_proxy(world.kafka.bootstrap_servers) as network:
        network.held.add(ALTER)
        done = replace(world, kafka=network.config()).execute(plan)
        assert [result["outcome"] for result in done["results"]] == ["unknown"]
        assert {row["status"] for row in world.verify(plan, wait_s=0)} == {"UNKNOWN"}
        yield
        network.release()


def plan_to(world: World, group: str, target: int) -> dict[str, Any]:
    return world.earliest(group, strategies={"to-offset": str(target)}, allow_skip=True)


@pytest.fixture
def group(world: Forgetful) -> str:
    """A group that starts at 9."""
    name = world.group()
    world.put(name, {0: 9})
    return name


def test_a_request_that_arrives_late_is_found_by_a_later_look(world: Forgetful, group: str) -> None:
    """Held back by the network until its sender has given up and found nothing: UNKNOWN, never FAILED, however often
    one looks, and exit code 5. Delivered then: the next look finds it done. The audit keeps both."""
    plan = plan_to(world, group, TARGET)
    with unanswered(world, plan):
        assert world.standing(plan["plan_id"]) == "UNKNOWN"
        rows = world.verify(plan, wait_s=0)
        with pytest.raises(OutcomeUnknown, match="no answer"):
            raise_unless_ok(plan["plan_id"], rows, None)
    assert {row["status"] for row in world.verify(plan)} == {"OK_EPOCH_NOT_BUMPED"}
    assert world.standing(plan["plan_id"]) == "DONE"
    assert world.verify(plan) == []
    rows = read_audit(world.tables, {"plan_id": plan["plan_id"], "event": Event.VERIFIED.value})
    assert [row.outcome for row in rows] == ["unknown", "unknown", "done"]
    checked_audit(world.tables)


@pytest.mark.few(1)
@pytest.mark.parametrize("looks_at", ["late", "done"])
def test_a_late_request_undoes_the_plan_after_it(world: Forgetful, group: str, looks_at: str) -> None:
    """A plan made before the silence is stale; one made after it names the other. It is done, and overwritten when the
    late request arrives: a look at either of the two says so."""
    before, late = plan_to(world, group, 2), plan_to(world, group, TARGET)
    with unanswered(world, late):
        with pytest.raises(PlanStale) as caught:
            world.execute(before)
        assert caught.value.rule == "unanswered_request"
        plan = plan_to(world, group, 7)
        (notice,) = (notice for notice in plan["notices"] if notice["rule"] == "unanswered_request")
        assert (notice["severity"], late["plan_id"] in notice["text"]) == ("serious", True)
        world.execute(plan)
        assert {row["status"] for row in world.verify(plan)} == {"OK_EPOCH_NOT_BUMPED"}
        assert world.standing(plan["plan_id"]) == "DONE"
    world.verify(late if looks_at == "late" else plan, wait_s=0)
    assert world.standing(plan["plan_id"]) == "OVERWRITTEN"
    assert world.standing(late["plan_id"]) == ("DONE" if looks_at == "late" else "UNKNOWN")
    checked_audit(world.tables)


@pytest.mark.full
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
        plans[group] = plan_to(exported if group == kept else world, group, TARGET)
    world.execute(plans[answered])
    assert exported.interrupted("after", signal.SIGKILL, plans[kept]["plan_id"])[0] == -signal.SIGKILL
    ends = {group: world.log_end(group) for group in plans}

    def export() -> None:
        assert command_line.run(capsys, "run", "export", "--state-only", *exported.arguments()).code == 0

    export()
    world.work(kept, WORKED, after=export)
    world.work(answered, WORKED)
    for group, end in ends.items():
        until(lambda group=group, end=end: world.log_start(group) > end, what=f"{group} to be pruned")
    found = {
        group: {row["status"] for row in (exported if group == kept else world).verify(plan, wait_s=0)}
        for group, plan in plans.items()
    }
    assert found == {answered: {"UNKNOWN"}, kept: {"OK"}}
    assert world.standing(plans[answered]["plan_id"]) == "UNKNOWN"
    world.reset(groups=[answered], topics=[TOPIC], strategies={"to-earliest": None})
