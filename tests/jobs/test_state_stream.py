"""The streaming source gives what an export gives: from checkpoint to checkpoint, and never of another topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from broker.workload import Workload
from confluent_kafka import TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from acktrail.broker.state import state_range
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConfigurationError, ForeignCluster, InvalidConfiguration
from acktrail.export.export_run import export
from acktrail.tables.delta.store import Tables
from acktrail_jobs.state_stream import STREAM_KEYS, ShareGroupState, StateStreamReader, limited

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("spark")]

BY = [("state_partition", "ascending"), ("offset", "ascending")]


@pytest.fixture
def topic(kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic in the place of the state topic, for this process: it can be pruned and deleted."""
    name = f"stream-{uuid4().hex}"
    Workload(kafka).create_topic(name, 2)
    monkeypatch.setattr(state_range, "STATE_TOPIC", name)
    return name


def reader(kafka: KafkaConfig, **options: str) -> StateStreamReader:
    return StateStreamReader(STREAM_KEYS.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}))


def read(stream: StateStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def work(kafka: KafkaConfig, group: str, count: int) -> None:
    workload = Workload(kafka)
    if group not in workload.admin.list_topics(timeout=60).topics:
        workload.create_topic(group)
    workload.produce(group, count)
    workload.acknowledge(group, group, count)


def run_query(spark: SparkSession, kafka: KafkaConfig, folder: Path, **options: str) -> None:
    """All that is there now, from the checkpoint on, into Parquet files."""
    source = spark.readStream.format("share_group_state").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    sink = source.options(**options).load().writeStream.format("parquet").option("path", str(folder / "rows"))
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def checkpoints(folder: Path) -> list[dict[str, Any]]:
    """The offsets of each micro-batch."""
    files = sorted((each for each in (folder / "checkpoint/offsets").glob("[0-9]*")), key=lambda each: int(each.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def test_two_micro_batches_are_what_an_export_gives(spark: SparkSession, kafka: KafkaConfig, tmp_path: Path) -> None:
    """With a restart from the checkpoint between them: record by record the rows of ``acktrail export``, columns that
    name the run aside. A checkpoint of another cluster is refused."""
    spark.dataSource.register(ShareGroupState)
    group = f"stream-{uuid4().hex[:8]}"
    work(kafka, group, 20)
    run_query(spark, kafka, tmp_path)
    first = spark.read.parquet(str(tmp_path / "rows")).count()
    work(kafka, group, 15)
    run_query(spark, kafka, tmp_path)
    tables = TablesConfig(uri=str(tmp_path / "tables"))
    export(kafka, tables, connectors=["state"])

    found = spark.read.parquet(str(tmp_path / "rows")).drop("run_id").toArrow().sort_by(BY)
    exported = Tables(tables).read("state_records").drop_columns(["run_id"]).sort_by(BY)
    assert found.to_pylist() == exported.to_pylist()
    assert 20 <= first <= found.num_rows - 15
    assert len(checkpoints(tmp_path)) == 2

    newest = max((tmp_path / "checkpoint/offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    cluster_id = checkpoints(tmp_path)[-1]["cluster_id"]
    newest.write_text(newest.read_text().replace(cluster_id, "another"))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="the offsets are of cluster another"):
        run_query(spark, kafka, tmp_path)


def test_pruned_offsets_fail_or_are_a_row(kafka: KafkaConfig, topic: str) -> None:
    """Whichever is chosen, they are never passed over; what is there is read either way."""
    workload = Workload(kafka)
    workload.produce(topic, 10)
    stream = reader(kafka)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert [row["offset"] for row in read(stream, start, end)] == list(range(10))
    for future in workload.admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result()
    with pytest.raises(ConfigurationError, match="offsets 0 to 3 of partition 0"):
        read(stream, start, end)
    marking = reader(kafka, gaps="rows")
    rows = read(marking, start, end)
    assert [(row["offset"], row["gap_first"], row["gap_last"], row["gap_reason"]) for row in rows] == [
        (None, 0, 3, "pruned"),
        *((offset, None, None, None) for offset in range(4, 10)),
    ]
    for future in workload.admin.delete_records([TopicPartition(topic, 0, 10)]).values():
        future.result()
    assert [(row["gap_first"], row["gap_last"]) for row in read(marking, start, end)] == [(0, 9)]
    assert marking.initialOffset()["partitions"] == {"0": 10, "1": 0}


def test_another_topic_or_cluster_is_refused(kafka: KafkaConfig, topic: str) -> None:
    """A topic that was recreated under the same name, a log that ends before the checkpoint, another cluster: when the
    batch is planned and when it is read."""
    workload, stream = Workload(kafka), reader(kafka, startingOffsets="latest")
    workload.produce(topic, 3)
    start = stream.initialOffset()
    assert start["partitions"] == {"0": 3, "1": 0}
    workload.produce(topic, 3)
    end = stream.latestOffset(start, ReadAllAvailable())
    (part,) = stream.partitions(start, end)
    for wrong, says in (
        ({"cluster_id": "another"}, "of cluster another"),
        ({"partitions": {"0": 7, "1": 0}}, "ends at 6, before the offset 7"),
    ):
        with pytest.raises(ForeignCluster, match=says):
            stream.latestOffset({**start, **wrong}, ReadAllAvailable())
    workload.delete_topic(topic)
    workload.create_topic(topic, 2)
    for call in (lambda: stream.latestOffset(end, ReadAllAvailable()), lambda: list(stream.read(part))):
        with pytest.raises(ForeignCluster, match="deleted or recreated"):
            call()


def test_a_topic_that_is_not_there_is_waited_for(kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that began before the state topic has all of it later."""
    name = f"stream-{uuid4().hex}"
    monkeypatch.setattr(state_range, "STATE_TOPIC", name)
    stream = reader(kafka, startingOffsets="latest", runId="r")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    workload = Workload(kafka)
    workload.create_topic(name)
    workload.produce(name, 2)
    rows = read(stream, start, stream.latestOffset(start, ReadAllAvailable()))
    assert [(row["offset"], row["run_id"]) for row in rows] == [(0, "r"), (1, "r")]


def test_a_micro_batch_has_a_limit(kafka: KafkaConfig, topic: str) -> None:
    """Batch by batch all offsets once, and none that came after the start of a run that ends."""
    workload, stream = Workload(kafka), reader(kafka, maxOffsetsPerTrigger="3")
    for partition, count in enumerate((7, 2)):
        workload.produce(topic, count, partition)
    stream.prepareForTriggerAvailableNow()
    workload.produce(topic, 5)
    at, rows, sizes = stream.initialOffset(), list[tuple[int, int]](), list[int]()
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found = read(stream, at, end)
        rows += [(row["state_partition"], row["offset"]) for row in found]
        sizes.append(len(found))
        at = end
    assert sizes == [3, 3, 3]
    assert sorted(rows) == [*((0, offset) for offset in range(7)), (1, 0), (1, 1)]
    assert stream.getDefaultReadLimit() == ReadMaxRows(3)
    assert limited({}, {"0": 9, "1": 9}, 1) == {"0": 1, "1": 0}


def test_options_are_checked(kafka: KafkaConfig) -> None:
    """A misspelt one, a value that is none, no broker named."""
    for wrong in ({"gap": "rows"}, {"gaps": "skip"}, {"maxOffsetsPerTrigger": "0"}, {"startingOffsets": "middle"}):
        with pytest.raises(InvalidConfiguration):
            reader(kafka, **wrong)
    with pytest.raises(InvalidConfiguration, match="bootstrap"):
        ShareGroupState({}).schema()
    assert reader(kafka).getDefaultReadLimit() == ReadAllAvailable()
