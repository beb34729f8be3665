"""`acktrail groups describe`: one group, 500, 10,000.

Compared with: the main class of `kafka-share-groups.sh --describe`.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tool import kafka_tool
from measure import Run, in_turn, run
from table import Row

from acktrail.errors import UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset, raise_unless_done
from acktrail_embedded import EmbeddedBroker

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
TOPIC = "described"
_MAKERS = 6
"""Connections that make groups: a broker answers those of one connection one after the other."""
_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OnBroker:
    """A run, and the CPU seconds that the broker's process took meanwhile."""

    run: Run
    broker_cpu_s: float

    def __str__(self) -> str:
        return f"{self.run}, {self.run.peak_mb:,.0f} MB; {self.broker_cpu_s:.1f} s CPU of the broker"


def compare(
    broker: EmbeddedBroker,
    group: str | None = None,
    rounds: int = 7,
    *,
    partitions: int = 10,
    some: int = 500,
    many: int = 10_000,
) -> list[Row]:
    """The table's rows for a group of a broker (None: for one of the demo, which is put there), for `some` groups
    beside Kafka's tool, and for `many` without it."""
    if group is None:
        from acktrail_demo.workload.workload_run import run_workload  # a branch, which a test of the trunk does without

        group = min(plan.group_id for plan in run_workload(broker.bootstrap_servers).scenario.groups)
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    where = ("--bootstrap-server", broker.bootstrap_servers)
    ours, theirs = in_turn(
        [acktrail, "groups", "describe", group, *where],
        kafka_tool(broker.version, SHARE_GROUPS, *where, "--describe", "--group", group),
        rounds=rounds,
    )
    every = [acktrail, "groups", "describe", "--all-groups", *where]
    _make(broker, range(some), partitions)
    _measured(broker, every)
    of_some = _measured(broker, every)
    tool = _measured(broker, kafka_tool(broker.version, SHARE_GROUPS, *where, "--describe", "--all-groups"))
    _make(broker, range(some, many), partitions)
    of_many = _measured(broker, every)
    return [
        Row(
            what="groups describe GROUP",
            ours=str(ours),
            beside=f"kafka-share-groups: {theirs}",
            ratio=ours.ratio(theirs),
        ),
        Row(
            what=f"{some:,} groups of {partitions} share partitions",
            ours=str(of_some),
            beside=f"kafka-share-groups: {tool}",
            ratio=of_some.run.ratio(tool.run),
        ),
        Row(what=f"{many:,} groups of {partitions} share partitions", ours=str(of_many)),
    ]


def _measured(broker: EmbeddedBroker, command: list[str]) -> OnBroker:
    before = _cpu_s(broker)
    done = run(command)
    return OnBroker(run=done, broker_cpu_s=_cpu_s(broker) - before)


def _cpu_s(broker: EmbeddedBroker) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def _make(broker: EmbeddedBroker, numbers: range, partitions: int) -> None:
    """Groups without members, by their start offsets: Kafka creates the group of such a request."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    if TOPIC not in admin.list_topics(timeout=60).topics:
        admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)
    offsets = [NewStartOffset(topic=TOPIC, partition=index, start_offset=0) for index in range(partitions)]

    def make(own: range) -> None:
        with ShareGroupAdmin(broker.config()) as share_groups:
            for number in own:
                raise_unless_done(share_groups.alter_offsets(f"many-{number:05}", offsets), operation="READ")

    for _ in range(_TRIES):
        with suppress(UnknownName):  # the coordinator learns of a new topic a little later
            make(numbers[:1])
            break
        time.sleep(0.1)
    with ThreadPoolExecutor(_MAKERS) as makers:
        list(makers.map(make, [numbers[start::_MAKERS] for start in range(_MAKERS)]))
