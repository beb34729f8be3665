"""Spark's workers read the keys around an expansion as this process does."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

import pytest
from broker.workload import Workload, until
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession
from samples.ledger_tables import find_expansions, look

from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.executors import InProcess
from acktrail.expansions import key_audit
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.delta.store import Tables
from acktrail.times import now_ms
from acktrail_jobs.spark_executors import SparkExecutors

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

RECORDS = 400


def test_both_kinds_of_workers_find_the_same(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs in stretches of 50 offsets, shared out: rows and keys are equal but for the run's own columns."""
    monkeypatch.setattr(key_audit, "_AT_ONCE", 50)
    kafka, topic, tables = broker.config(), f"spread-{uuid4().hex[:8]}", TablesConfig(uri=str(tmp_path))
    workload = Workload(kafka)
    workload.create_topic(topic, 2)
    settings = {**to_librdkafka(kafka), "partitioner": "murmur2_random", "log_level": 3}
    stale = Producer({**settings, "topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": 86_400_000})
    stale.produce(topic, key=b"first")
    assert stale.flush(60) == 0
    look(kafka, tables, topic)
    for future in workload.admin.create_partitions([NewPartitions(topic, 3)]).values():
        future.result()
    until(lambda: len(workload.admin.list_topics(topic).topics[topic].partitions) == 3, what="3 partitions")
    look(kafka, tables, topic)
    at_ms = now_ms() - 60_000
    for producer in (stale, Producer(settings)):
        for number in range(RECORDS):
            producer.produce(topic, key=f"key-{number % 90}".encode(), timestamp=at_ms)
        assert producer.flush(60) == 0
    look(kafka, tables, topic)
    find_expansions(tables, KeyMapping.MURMUR2, settle_ms=1)

    found = {}
    for workers in (InProcess(), SparkExecutors(lambda: spark)):
        summary = key_audit.audit_keys(
            kafka, tables, lambda _rows, own=workers: nullcontext(own), topic, shows_keys=True
        )
        assert summary.records == 2 * RECORDS
        assert summary.keys_at_risk
        stored = [
            sorted(map(str, Tables(tables).read(name).drop_columns(["run_id", *extra]).to_pylist()))
            for name, extra in (("key_audits", ["audited_at"]), ("keys_at_risk", []))
        ]
        found[type(workers)] = (stored, summary.keys)
    assert found[InProcess] == found[SparkExecutors]
