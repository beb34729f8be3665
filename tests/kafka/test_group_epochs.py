"""When a running broker raises a group's epoch."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from uuid import uuid4

import pytest
from servers.workload import Workload, until

from acktrail.embedded import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin

_SHORT_SESSIONS = {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "2000",
}
_MEMBER = """
import sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.2)
"""


def test_epochs_grow_with_members_subscriptions_and_partitions(admin: ShareGroupAdmin, workload: Workload) -> None:
    """R002-01, R002-02, R002-04: the group epoch grows when a member joins, subscribes to another topic, when that
    topic gets a partition, and when the member leaves; while nothing happens it stays."""
    name = f"epochs-{uuid4().hex[:8]}"
    first, second = f"{name}-first", f"{name}-second"
    for topic in (first, second):
        workload.create_topic(topic)
    epochs: list[int] = []

    def settled(topic: str, partitions: int) -> int | None:
        """The epoch, once the one member reads `partitions` of `topic`."""
        consumer.poll(0.2)
        group = admin.describe_groups([name])[0]
        wanted = [(part.topic, len(part.partitions)) for member in group.members for part in member.assignment]
        return group.group_epoch if wanted == [(topic, partitions)] else None

    with workload.share_consumer(name, first) as consumer:
        epochs.append(until(lambda: settled(first, 1), what="an assignment"))
        assert [settled(first, 1) for _ in range(5)] == epochs * 5
        consumer.subscribe([second])
        epochs.append(until(lambda: settled(second, 1), what="the other topic"))
        workload.add_partitions(second, 2)
        epochs.append(until(lambda: settled(second, 2), what="the new partition"))
    epochs.append(admin.describe_group(name).group_epoch or 0)

    assert all(before < after for before, after in pairwise(epochs))


@pytest.mark.full
def test_epochs_grow_when_a_dead_member_is_removed() -> None:
    """R002-03, R001-29: a member that was killed counts as one until its session ends; then the coordinator takes it
    out, with a new group epoch."""
    with EmbeddedBroker(properties=_SHORT_SESSIONS) as broker, ShareGroupAdmin(broker.config()) as admin:
        Workload(broker.config()).create_topic("orders")
        command = [sys.executable, "-c", _MEMBER, broker.bootstrap_servers, "g", "orders"]
        with subprocess.Popen(command) as member:
            try:
                until(lambda: admin.describe_groups(["g"])[0].members, what="a member")
            finally:
                member.kill()
        left_behind = admin.describe_group("g")
        assert left_behind.members
        until(lambda: not admin.describe_group("g").members, what="the session's end")
        after = admin.describe_group("g")

    assert (after.group_epoch or 0) > (left_behind.group_epoch or 0)
