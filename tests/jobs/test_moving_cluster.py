"""Observations of a real broker whose groups never stand still."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest
from confluent_kafka import AcknowledgeType
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.export.export_run import observe
from acktrail.tables.delta.store import Tables
from acktrail_jobs.commands.pipeline_commands import reconcile

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OBSERVATIONS = 4


class Movement:
    """One producer and one share consumer that accept, release and reject until they are stopped."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload, self._name = workload, name
        self._told = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self._workload.create_topic(self._name)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told.set()
        for thread in self._threads:
            thread.join(240)

    def _produce(self) -> None:
        while not self._told.wait(0.01):
            self._workload.produce(self._name, 7)

    def _consume(self) -> None:
        answers = (AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
        explicit = {"share.acknowledgement.mode": "explicit"}
        with self._workload.share_consumer(self._name, self._name, **explicit) as consumer:
            while not self._told.is_set():
                for number, message in enumerate(consumer.poll(0.2) or ()):
                    consumer.acknowledge(message, answers[number % len(answers)])
                    if number % 5 == 0:
                        consumer.commit_sync()
                    self.acknowledged += 1


@pytest.mark.full
def test_a_cluster_at_work_raises_no_false_alarm(kafka: KafkaConfig, tmp_path: Path) -> None:
    """While records are produced, acknowledged and archived: every observation matches, and some are reported to have
    moved."""
    name, tables = f"moving-{uuid4().hex[:8]}", TablesConfig(uri=str(tmp_path / "tables"))
    with Movement(Workload(kafka), name) as movement:
        for number in range(OBSERVATIONS):
            reached = movement.acknowledged
            until(lambda reached=reached: movement.acknowledged > reached, what="an acknowledgement")
            observe(kafka, tables, run_id=f"r{number}")
    for number in range(OBSERVATIONS):
        reconcile(tables, f"r{number}", "in-process")
    rows = [row for row in Tables(tables).read("reconciliations").to_pylist() if row["group_id"] == name]
    assert len(rows) == OBSERVATIONS
    assert {row["verdict"] for row in rows} == {"match"}, [(row["verdict"], row["reason"]) for row in rows]
    assert any(row["moved"] for row in rows)
