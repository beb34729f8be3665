"""Share groups at work, for deploy/compose.yaml: each second a record is produced; one group accepts all, the other
releases every fifth record until the broker archives it."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

BROKERS = {
    "bootstrap.servers": os.environ["ACKTRAIL_BOOTSTRAP_SERVERS"],
    "reconnect.backoff.ms": 1_000,
    "log_level": 2,
}
TOPIC = "orders"
GROUPS = ("billing", "shipping")


def prepare(admin: AdminClient) -> None:
    """A topic, and groups that begin at its start. Raises KafkaException while no broker answers."""
    if TOPIC not in admin.list_topics(timeout=5).topics:
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.GROUP, group, incremental_configs=[begin]) for group in GROUPS]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(30)


def consumer(group: str) -> ShareConsumer:
    made = ShareConsumer({**BROKERS, "group.id": group, "share.acknowledgement.mode": "explicit"})
    made.subscribe([TOPIC])
    return made


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    admin = AdminClient(BROKERS)
    while True:
        try:
            prepare(admin)
            break
        except KafkaException:
            time.sleep(2)
    producer, consumers = Producer(BROKERS), {group: consumer(group) for group in GROUPS}
    for number in itertools.count():
        producer.produce(TOPIC, f"order {number}")
        producer.poll(0)
        for group, member in consumers.items():
            for record in member.poll(0.5) or ():
                if record.error() is None:
                    is_refused = group == "shipping" and record.offset() % 5 == 0
                    kind = AcknowledgeType.RELEASE if is_refused else AcknowledgeType.ACCEPT
                    member.acknowledge(record, kind)


main()
