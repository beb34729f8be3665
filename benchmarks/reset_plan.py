"""`acktrail change plan reset` of one group with 100 share partitions, state and impact included.

Compared with: the main class of `kafka-share-groups.sh --reset-offsets --dry-run`, offsets only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tool import kafka_tool
from measure import in_turn
from table import Row

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset, raise_unless_done
from acktrail_embedded import EmbeddedBroker

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
TOPIC = "big"


def compare(broker: EmbeddedBroker, groups: int = 100, partitions: int = 100, rounds: int = 5) -> list[Row]:
    """The table's rows for one group, and for `groups` of `partitions` share partitions each."""
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    _make(broker, groups, partitions)
    where = ("--bootstrap-server", broker.bootstrap_servers)
    one = ("--group", "g-000", "--topic", TOPIC, "--to-earliest")
    ours, theirs = in_turn(
        [acktrail, "change", "plan", "reset", *one, *where],
        kafka_tool(broker.version, SHARE_GROUPS, *where, "--reset-offsets", "--dry-run", *one),
        rounds=rounds,
    )
    every = [acktrail, "change", "plan", "reset", "--group-glob", "g-*", "--topic", TOPIC, "--to-earliest", *where]
    many, _ = in_turn(every, every, rounds=1)
    return [
        Row(
            what=f"reset plan, one group of {partitions} share partitions",
            ours=str(ours),
            beside=f"kafka-share-groups --dry-run: {theirs}",
            ratio=ours.ratio(theirs),
        ),
        Row(what=f"{groups} groups of {partitions} share partitions", ours=str(many)),
    ]


def _make(broker: EmbeddedBroker, groups: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        future.result(30)
    offsets = [NewStartOffset(topic=TOPIC, partition=index, start_offset=0) for index in range(partitions)]
    with ShareGroupAdmin(broker.config()) as share_groups:
        for number in range(groups):
            raise_unless_done(share_groups.alter_offsets(f"g-{number:03}", offsets), operation="READ")
