"""A group with archived records on a real broker, and redrives of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType, Producer
from drivers.command_line import run
from drivers.own_process import finished
from drivers.whole_topic import messages_of

from acktrail.change import api
from acktrail.change.change_kind import AT_ONCE, Pace, Settled
from acktrail.change.cluster import Cluster
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.tables.delta.store import Tables
from acktrail_redrive.new_redrive import RedriveRequest, make_plan
from acktrail_redrive.redrive_plan import RedrivePlan

RECORDS, EVERY, PARTITIONS = 60, 5, 2
POISON: Final = RECORDS // EVERY * PARTITIONS
"""Records that the group rejects."""


@dataclass
class Poisoned(World):
    """A group that rejected every fifth record of its topic, and its exported history."""

    name: str = field(default_factory=lambda: f"redrive-{uuid4().hex[:8]}")

    @property
    def topic(self) -> str:
        return f"{self.name}-orders"

    def begin(self) -> None:
        self.workload.create_topic(self.topic, PARTITIONS, **{"retention.ms": "-1"})
        producer = Producer(to_librdkafka(self.kafka))
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                headers = [("of", b"test"), ("null", None)]
                key = f"k{number % 7}".encode()
                producer.produce(self.topic, f"{number}", key, partition, timestamp=1_000 + number, headers=headers)
        assert producer.flush(30) == 0
        reject, accept = AcknowledgeType.REJECT, AcknowledgeType.ACCEPT
        self.settle(self.name, self.topic, RECORDS * PARTITIONS, lambda p: accept if p[1] % EVERY else reject)

    def export(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        done = run(capsys, "run", "export", *self.arguments(), *words)
        assert done.code == 0, done
        assert run(capsys, "run", "history", "--tables", self.tables.uri).code == 0

    def target(self, partitions: int = PARTITIONS, **configs: str) -> str:
        name = f"{self.name}-retry-{uuid4().hex[:6]}"
        self.workload.create_topic(name, partitions, **{"retention.ms": "-1", **configs})
        return name

    def planned(self, to: str, **asked: Any) -> RedrivePlan:
        request = RedriveRequest(**{"group": self.name, "to": to, "most_attempts": 99, "created_by": "ann", **asked})
        with Cluster(self.kafka) as cluster:
            plan = make_plan(cluster, self.tables, request)
        api.store_plan(self.tables, plan)
        return plan

    def apply(self, plan: RedrivePlan, pace: Pace = AT_ONCE) -> Settled:
        with Cluster(self.kafka) as cluster:
            journal = api.open_journal(self.tables, plan, actor="ann")
            api.execute(cluster, journal, plan, pace=pace)
            return api.verify(cluster, journal, plan)

    def find_out(self, plan: RedrivePlan) -> Settled:
        with Cluster(self.kafka) as cluster:
            return api.verify(cluster, api.open_journal(self.tables, plan, actor="ann"), plan)

    def killed(self, plan: RedrivePlan, point: str, number: int, size: int = 5) -> None:
        """A process of its own that is killed at the transaction `number`; each has `size` records."""
        script = Path(__file__).with_name("interrupted_redrive.py")
        words = (point, str(number), str(size), "change", "apply", plan.plan_id, "--execute", *self.arguments())
        done = finished(sys.executable, script, *words)
        assert done.returncode == -9, done

    def arrived(self, topic: str, isolation: str = "read_committed") -> list[tuple[int, int]]:
        """Source partition and offset of every record in a topic that was put back, by an own reader."""
        properties = {**to_librdkafka(self.kafka), "isolation.level": isolation}
        found = [dict(message.headers()) for message in messages_of(properties, topic)]
        names = ("acktrail.redrive.partition", "acktrail.redrive.offset")
        return sorted((int(own[names[0]]), int(own[names[1]])) for own in found if names[0] in own)

    def stored(self, plan: RedrivePlan) -> list[dict[str, Any]]:
        tables = Tables(self.tables)
        rows = tables.rows("redriven_records", {"plan_id": plan.plan_id}) if tables.exists("redriven_records") else []
        return sorted(rows, key=lambda row: row["number"])

    def check_places(self, plan: RedrivePlan, topic: str) -> None:
        """Each row of the table names the place at which a reader finds the record."""
        properties = {**to_librdkafka(self.kafka), "isolation.level": "read_committed"}
        seen = {}
        for message in messages_of(properties, topic):
            own = dict(message.headers())
            source = int(own["acktrail.redrive.partition"]), int(own["acktrail.redrive.offset"])
            seen[message.partition(), message.offset()] = source
        rows = self.stored(plan)
        assert [row["number"] for row in rows] == list(range(POISON))
        found = {(row["target_partition"], row["target_offset"]): (row["partition"], row["offset"]) for row in rows}
        assert found == seen


ALL: Final = sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(0, RECORDS, EVERY))
