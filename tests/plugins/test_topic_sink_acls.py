"""The rights of the topic sink: what `doctor` finds, and what an error names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.rights import GROUP, doctor, run_by_kafkas_tool
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.model.acls import POSITIONS_TOPIC
from acktrail_plugins.topic.topic_sink import KafkaTopicSink

__all__ = ["doctor"]


@pytest.mark.full
def test_the_rights_of_the_connectors_are_found_and_granted(
    guarded: GuardedBroker, guarded_workload: Workload, doctor: Callable[..., Any], tmp_path: Path
) -> None:
    """For a user without rights all that can be known is missing; after doctor's commands, run by Kafka's own tool,
    nothing is, and a topic sink of that user writes a row. Of transactional ids nothing is known in advance."""
    purposes, topics = ("metadata", "dead-letters", "ledger", "topic-sink"), ("rows-of-the-sink", POSITIONS_TOPIC)
    for topic, configs in zip(topics, ({}, {"cleanup.policy": "compact"}), strict=True):
        guarded_workload.create_topic(topic, **configs)
    code, checks = doctor("sinker", *purposes, groups=[GROUP], topics=topics[:1])
    statuses = {check["what"]: check["status"] for check in checks}
    ids = "ACL for topic-sink: WRITE on every transactional-id that begins with acktrail/"
    assert (code, statuses.pop(ids)) == (3, "note")
    assert set(statuses.values()) == {"missing"}
    run_by_kafkas_tool(guarded, tmp_path, list(dict.fromkeys(check["command"] for check in checks)))

    def left() -> set[str]:
        return {
            check["what"]
            for check in doctor("sinker", *purposes, groups=[GROUP], topics=topics[:1])[1]
            if check["status"] != "ok"
        }

    until(lambda: left() == {ids}, what="every ACL")
    kafka, source = guarded.config("sinker"), SourcePartition("p")
    keys = {f"kafka.{name}": value for name, value in kafka.properties.items()}
    own = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **keys, "topic": topics[0]}
    task = KafkaTopicSink(KafkaTopicSink.config_def.parse(own)).task(SinkTaskContext(connector="c", run_id="run"))
    try:
        assert task.position(source) is None
        task.put(SourceBatch(source_partition=source, rows={"t": pa.table({"n": [1]})}, position=1))
        task.flush()
        assert task.position(source) == 1
    finally:
        task.stop()
