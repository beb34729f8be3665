"""Real share consumers that misbehave on a real broker, and the statuses of their groups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.export.export_run import observe
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail.view.health import status_reader
from acktrail_jobs.commands.pipeline_commands import reconcile

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
RECORDS = 3
DELIVERIES = 5
"""The limit of deliveries that a broker has by default."""
HOLDS = """
import sys, time
from confluent_kafka import ShareConsumer
servers, group, topic = sys.argv[1:]
mode = {"share.acknowledgement.mode": "explicit"}
consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": group, **mode})
consumer.subscribe([topic])
while not [each for each in consumer.poll(0.5) or () if each.error() is None]:
    pass
sys.stdout.write("holds")
sys.stdout.flush()
time.sleep(600)
"""


class Groups:
    """One topic of one partition for each group; the name of a group is that of its topic."""

    def __init__(self, kafka: KafkaConfig, stack: ExitStack) -> None:
        self.kafka, self.workload, self._stack = kafka, Workload(kafka), stack
        self.own = uuid4().hex[:8]

    def name(self, role: str) -> str:
        return f"{role}-{self.own}"

    def member(self, role: str) -> ShareConsumer:
        """A member of the role's group, on a topic of its own."""
        name = self.name(role)
        self.workload.create_topic(name)
        return self._stack.enter_context(self.workload.share_consumer(name, name, **EXPLICIT))

    def produce(self, *roles: str) -> None:
        for role in roles:
            self.workload.produce(self.name(role), RECORDS)

    def die_holding(self, role: str) -> None:
        """A member takes records and is killed."""
        arguments = [self.kafka.bootstrap_servers, self.name(role), self.name(role)]
        with subprocess.Popen([sys.executable, "-c", HOLDS, *arguments], stdout=subprocess.PIPE) as member:
            try:
                assert member.stdout is not None
                assert member.stdout.read(5) == b"holds"
            finally:
                member.kill()


@pytest.fixture
def groups(kafka: KafkaConfig) -> Iterator[Groups]:
    with ExitStack() as stack:
        yield Groups(kafka, stack)


def settle(consumer: ShareConsumer, deliveries: int, how: AcknowledgeType) -> None:
    """Settle that many deliveries, whichever come."""
    done = 0

    def go_on() -> bool:
        nonlocal done
        messages: list[Any] = [each for each in consumer.poll(0.3) or () if each.error() is None]
        for message in messages:
            consumer.acknowledge(message, how)
        if messages:
            consumer.commit_sync()
        done += len(messages)
        return done >= deliveries

    until(go_on, what=f"{deliveries} deliveries")


@pytest.mark.full
def test_consumers_that_misbehave(groups: Groups, tmp_path: Path) -> None:
    """One that never acknowledges: stuck at the third observation of its first unfinished offset; one that died with
    its locks: unattended as soon as the broker has missed it, and no release loop; one that releases everything and
    one that rejects everything show at once; a healthy one and an idle topic are never bad."""
    tables = TablesConfig(uri=str(tmp_path / "tables"))
    healthy, releasing, rejecting, holding = map(groups.member, ("healthy", "releasing", "rejecting", "holding"))
    idle = groups.member("idle")
    with ExitStack() as first:
        dead = groups.name("dead")
        groups.workload.create_topic(dead)
        member = first.enter_context(groups.workload.share_consumer(dead, dead, **EXPLICIT))
        groups.produce("holding", "dead")
        settle(member, RECORDS, AcknowledgeType.ACCEPT)
        settle(holding, RECORDS, AcknowledgeType.ACCEPT)
    idle.poll(0.1)
    groups.produce("holding", "dead")
    groups.die_holding("dead")
    until(lambda: [each for each in holding.poll(0.3) or () if each.error() is None], what="records to hold")

    with ShareGroupAdmin(groups.kafka) as admin:
        until(lambda: not admin.describe_groups([groups.name("dead")])[0].members, what="the dead member's end")

    found = []
    for _ in range(3):
        groups.produce("healthy", "releasing", "rejecting", "holding", "dead")
        settle(healthy, RECORDS, AcknowledgeType.ACCEPT)
        settle(rejecting, RECORDS, AcknowledgeType.REJECT)
        settle(releasing, RECORDS * DELIVERIES, AcknowledgeType.RELEASE)
        observe(groups.kafka, tables)
        reconcile(tables, with_history=True)
        rows = status_reader.statuses(Tables(tables)).to_pylist()
        found.append({row["group_id"].removesuffix(f"-{groups.own}"): row for row in rows})

    for number, statuses in enumerate(found):
        shown = {role: row["status"] for role, row in statuses.items() if groups.own in row["group_id"]}
        assert shown["healthy"] == "ok", statuses["healthy"]
        assert shown["idle"] == "idle", statuses["idle"]
        assert shown["releasing"] == "release_loop", statuses["releasing"]
        assert shown["rejecting"] == "reject_storm", statuses["rejecting"]
        assert shown["holding"] == ("new", "ok", "stuck")[number], statuses["holding"]
        assert shown["dead"] == "unattended", statuses["dead"]
    assert f"first unfinished offset {RECORDS} stays in the newest 3 observations" in found[2]["holding"]["reason"]
    assert found[2]["holding"]["members"] == 1
    assert found[2]["rejecting"]["archived"] == 3 * RECORDS
    assert found[2]["releasing"]["released"] == 3 * RECORDS * (DELIVERIES - 1)
