"""Share groups at work on a real broker, and resets of them by the steps that the command line calls."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import pytest
from confluent_kafka import AcknowledgeType, Producer
from drivers.command_line import Done
from drivers.own_process import finished
from servers.workload import Workload, start_at, until

from acktrail.change import api
from acktrail.change.audit.journal import read_audit
from acktrail.change.change_kind import OpenRequests, parse_plan
from acktrail.change.cluster import Cluster
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan_status import list_plans
from acktrail.change.request.reset_request import ResetRequest, parse_request
from acktrail.change.reset_planner import make_plan
from acktrail.change.undo import undo_request
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.dataclass_json import to_json_value
from acktrail.group_changes.group_change_plan import plan_deletion
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

__all__ = ["BASE_MS", "ONE_RELEASE", "RECORDS", "TOPIC", "Command", "Delivery", "Fates", "Scene", "World", "reset_plan"]

BASE_MS: Final = (time.time_ns() // 1_000_000 - 3_600_000) // 1000 * 1000
"""The time of the first record of every partition; the next are a second apart each."""
_PATIENCE_S: Final = 240.0

Part = tuple[int, int]
"""Partition and offset."""
Fates = dict[Part, AcknowledgeType]
"""What a group did with each record, the last word."""


@dataclass(frozen=True, order=True)
class Delivery:
    """One record as a share consumer got it."""

    partition: int
    offset: int
    count: int


Command = Callable[..., Done]
TOPIC, RECORDS = "orders", 12
"""Of a scene."""
ONE_RELEASE = pytest.mark.parametrize("scene", ["4.3.1"], indirect=True)
"""For rules that depend on no release of Kafka."""


@dataclass
class World:
    """One broker and one set of tables."""

    kafka: KafkaConfig
    tables: TablesConfig
    workload: Workload = field(init=False)

    def __post_init__(self) -> None:
        self.workload = Workload(self.kafka)

    @classmethod
    def at(cls, kafka: KafkaConfig, folder: Path) -> Self:
        return cls(kafka=kafka, tables=TablesConfig(uri=str(folder / "tables")))

    def make_topic(self, topic: str, partitions: int, records: int) -> None:
        """A topic whose records are a second apart."""
        self.workload.create_topic(topic, partitions)
        producer = Producer(to_librdkafka(self.kafka))
        for partition in range(partitions):
            for number in range(records):
                producer.produce(topic, str(number).encode(), partition=partition, timestamp=BASE_MS + 1000 * number)
        assert producer.flush(30) == 0

    def settle(self, group: str, topic: str, records: int, decide: Callable[[Part], AcknowledgeType]) -> Fates:
        """A share consumer of the group gets `records` different records and settles each as `decide` says."""
        fates: Fates = {}
        deadline = time.monotonic() + _PATIENCE_S
        with self.workload.share_consumer(group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:
            while len(fates) < records:
                assert time.monotonic() < deadline, f"{len(fates)} of {records} records came to {group}"
                for message in consumer.poll(0.2) or ():
                    assert message.error() is None, message.error()
                    part = (message.partition(), message.offset())
                    fates[part] = decide(part)
                    consumer.acknowledge(message, fates[part])
                consumer.commit_sync()
        self.wait_empty(group)
        return fates

    def deliveries(self, group: str, topic: str, records: int) -> list[Delivery]:
        """What a new share consumer gets, until it has `records`; and that nothing comes after them."""
        found: dict[Part, Delivery] = {}
        deadline = time.monotonic() + _PATIENCE_S
        with self.workload.share_consumer(group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:
            while len(found) < records:
                assert time.monotonic() < deadline, f"{len(found)} of {records} records came to {group}"
                self._take(consumer, found)
            self._take(consumer, found)
        return sorted(found.values())

    def _take(self, consumer: Any, found: dict[Part, Delivery]) -> None:
        for message in consumer.poll(0.3) or ():
            part = (message.partition(), message.offset())
            assert part not in found, f"{part} came twice"
            found[part] = Delivery(*part, message.delivery_count())
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.commit_sync()

    def wait_empty(self, *groups: str) -> None:
        with Cluster(self.kafka) as cluster:
            until(lambda: api.wait_until_empty(cluster, groups, timeout_s=0), what="groups to be empty")

    @contextmanager
    def member(self, group: str, topic: str) -> Any:
        """A living member, for the time of the block."""
        stop = threading.Event()
        joined = threading.Event()

        def live() -> None:
            with self.workload.share_consumer(group, topic, **{"client.id": "a-member"}) as consumer:
                while not stop.is_set():
                    consumer.poll(0.1)
                    joined.set()

        thread = threading.Thread(target=live)
        thread.start()
        try:
            joined.wait(30)
            until(lambda: self._members(group), what="the member to be seen")
            yield
        finally:
            stop.set()
            thread.join(30)
            self.wait_empty(group)

    def _members(self, group: str) -> tuple[str, ...]:
        with ShareGroupAdmin(self.kafka) as admin:
            return tuple(member.client_id for member in admin.describe_groups([group])[0].members)

    def plan(self, **params: Any) -> dict[str, Any]:
        """A plan as its JSON."""
        return self.plan_of(parse_request(params))

    def plan_of(self, request: ResetRequest) -> dict[str, Any]:
        with Cluster(self.kafka) as cluster:
            return to_json_value(make_plan(cluster, request, tables=self.tables))

    def undo(self, plan: dict[str, Any], **named: Any) -> dict[str, Any]:
        """The plan that undoes `plan`."""
        return self.plan_of(undo_request(reset_plan(plan), **named))

    def store(self, plan: dict[str, Any]) -> None:
        api.store_plan(self.tables, reset_plan(plan))

    def would_send(self, plan: dict[str, Any], **named: Any) -> Any:
        with Cluster(self.kafka) as cluster:
            return api.recheck(cluster, self.tables, reset_plan(plan), **named)

    def execute(self, plan: dict[str, Any], **named: Any) -> dict[str, Any]:
        made = reset_plan(plan)
        with Cluster(self.kafka) as cluster:
            journal = api.open_journal(self.tables, made)
            api.store_checked(cluster, journal, made, **named)
            return to_json_value(api.execute(cluster, journal, made, **named))

    def verify(self, plan: dict[str, Any], *, wait_s: float = 10.0, watch_s: float = 0.0) -> list[dict[str, Any]]:
        made = reset_plan(plan)
        with Cluster(self.kafka) as cluster:
            journal = api.open_journal(self.tables, made)
            return to_json_value(api.verify(cluster, journal, made, wait_s=wait_s, watch_s=watch_s).partitions)

    def note_decision(self, plan: dict[str, Any], **named: Any) -> str:
        return api.note_decision(self.tables, reset_plan(plan), **named)

    def plan_deletion(self, groups: Sequence[str], topics: Sequence[str] = ()) -> dict[str, Any]:
        with Cluster(self.kafka) as cluster:
            return to_json_value(plan_deletion(cluster, groups, topics))

    def execute_change(self, plan: dict[str, Any]) -> Any:
        """Carry a plan of any kind out, and settle it: its outcome."""
        made = parse_plan(json.dumps(plan), "plan")
        with Cluster(self.kafka) as cluster:
            journal, requests = api.open_journal(self.tables, made), OpenRequests(made.plan_id)
            with requests:
                api.store_checked(cluster, journal, made)
                done = api.execute(cluster, journal, made, requests=requests)
                settled = api.verify(cluster, journal, made, requests=requests)
            return api.outcome(journal, made, settled, done)

    def group(self, suffix: str = "") -> str:
        """A group that starts at 5 in two partitions, without a consumer ever."""
        name = f"g-{uuid4().hex[:8]}{suffix}"
        self.put(name, {0: 5, 1: 5})
        return name

    def put(self, group: str, starts: dict[int, int]) -> None:
        """Another client's reset."""
        start_at(self.kafka, group, {(TOPIC, index): at for index, at in starts.items()})

    def interrupted(self, moment: str, number: int, plan_id: str) -> tuple[int, str]:
        """A process of its own carries out a stored plan, and gets a signal right before or right after the request:
        how it ended, and what it said on stderr."""
        script = Path(__file__).with_name("interrupted_process.py")
        words = (moment, str(int(number)), "change", "apply", plan_id, "--execute", *self.arguments())
        done = finished(sys.executable, script, *words)
        return done.returncode, done.stderr

    def starts(self, group: str) -> list[int | None]:
        with ShareGroupAdmin(self.kafka) as admin:
            return [offset.start_offset for offset in admin.describe_group_offsets([group])[0].offsets]

    def earliest(self, group: str, **changes: Any) -> dict[str, Any]:
        """A stored plan."""
        plan = self.plan(**{"groups": [group], "topics": [TOPIC], "strategies": {"to-earliest": None}, **changes})
        self.store(plan)
        return plan

    def standing(self, plan_id: str) -> str:
        return next(line["standing"] for line in list_plans(self.tables) if line["plan_id"] == plan_id)

    def is_open(self, plan_id: str) -> bool:
        """Whether nobody knows what became of a plan; RUNNING: the process that sent it, a test, still lives."""
        return self.standing(plan_id) in {"RUNNING", "UNKNOWN", "UNVERIFIED"}

    def events(self, plan_id: str) -> list[str]:
        return [row.event for row in read_audit(self.tables, {"plan_id": plan_id})]

    def arguments(self) -> tuple[str, ...]:
        return ("--bootstrap-server", self.kafka.bootstrap_servers, "--tables", self.tables.uri)

    def reset(self, **params: Any) -> dict[str, Any]:
        """Plan, carry out, verify; everything must be done."""
        plan = self.plan(**params)
        self.execute(plan)
        verified = self.verify(plan)
        assert all(row["status"].startswith("OK") for row in verified), verified
        assert len(verified) == len(plan["partitions"])
        return plan


def reset_plan(plan: dict[str, Any]) -> ResetPlan:
    """The value of a plan's JSON, with its hash checked."""
    made = parse_plan(json.dumps(plan), "plan")
    assert isinstance(made, ResetPlan)
    return made


class Scene(World):
    """A broker that may be killed, and its tables."""

    broker: EmbeddedBroker
