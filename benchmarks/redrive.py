"""A redrive of many archived records, each beside one that was acknowledged: its plan, and its records put back."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from measure import run
from table import Row

from acktrail.text_parsing import parse_json
from acktrail_embedded import EmbeddedBroker

GROUP, SOURCE, TARGET, PLAIN = "poisoned", "poison", "poison-retry", "plain"
_VALUE = b"v" * 200


def compare(broker: EmbeddedBroker, records: int = 100_000) -> list[Row]:
    """The table's rows for `records` archived records of twice as many."""
    acktrail, where = str(Path(sys.executable).with_name("acktrail")), ("--bootstrap-server", broker.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in (SOURCE, TARGET, PLAIN)]).values():
        future.result(30)
    _produce(broker, SOURCE, 2 * records)
    _reject_every_second(broker, admin, 2 * records)
    with tempfile.TemporaryDirectory() as folder:
        tables, out = ("--tables", f"{folder}/tables"), Path(folder) / "plan.json"
        here = {**os.environ, "ACKTRAIL_SPARK_MASTER": "in-process"}
        run([acktrail, "run", "export", *where, *tables])
        run([acktrail, "run", "history", *tables], environment=here)
        words = ("--group", GROUP, "--to", TARGET, "--out", str(out))
        planned = run([acktrail, "change", "plan", "redrive", *words, *where, *tables])
        assert parse_json(out.read_text())["records"] == records
        applied = run([acktrail, "change", "apply", str(out), "--execute", *where, *tables])
    plain_s = _produce(broker, PLAIN, records)
    return [
        Row(what=f"plan of {records:,} archived records, as many ranges", ours=str(planned)),
        Row(
            what=f"{records:,} records put back, each exactly once",
            ours=f"{applied}; {records / applied.wall_s:,.0f} a second, {applied.peak_mb:.0f} MB",
            beside=f"a plain producer: {records / plain_s:,.0f} a second",
        ),
    ]


def _produce(broker: EmbeddedBroker, topic: str, records: int) -> float:
    producer, begun = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5}), time.perf_counter()
    for number in range(records):
        if number % 10_000 == 0:
            producer.flush()
        producer.produce(topic, _VALUE, b"%d" % number, headers=[("h", b"1")])
    assert producer.flush(60) == 0
    return time.perf_counter() - begun


def _reject_every_second(broker: EmbeddedBroker, admin: AdminClient, records: int) -> None:
    resource = ConfigResource(ResourceType.GROUP, GROUP)
    for name, value in (("share.auto.offset.reset", "earliest"), ("share.record.lock.duration.ms", "60000")):
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    words = {"group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    consumer, done = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, **words}), set[int]()
    consumer.subscribe([SOURCE])
    while len(done) < records:
        for message in consumer.poll(1.0) or ():
            is_poison = message.offset() % 2
            consumer.acknowledge(message, AcknowledgeType.REJECT if is_poison else AcknowledgeType.ACCEPT)
            done.add(message.offset())
        consumer.commit_sync()
    consumer.close()
