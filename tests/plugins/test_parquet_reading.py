"""Engines read the folder of a table that ``ParquetSink`` wrote, and get its rows, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import REGION, S3

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.tables.lease import WorkerLease
from acktrail_plugins.parquet.parquet_files import file_storage
from acktrail_plugins.parquet.parquet_sink import ParquetSinkTask

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LOGS = SinkTaskContext(connector="c", run_id="run", cluster_id="memory", reads_logs=True)
ROWS = SinkTaskContext(connector="c", run_id="run")
BY = [("state_partition", "ascending"), ("offset", "ascending")]


def logs() -> list[MemoryLog]:
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x07", b"")]
    return [MemoryLog(pairs=pairs, partition=number, end_offset=30) for number in range(3)]


def write(config: TablesConfig) -> list[dict[str, Any]]:
    """Three logs in many files; the rows that must be there."""
    assert WorkerLease(config, "c", owner="w").acquire()
    task = ParquetSinkTask(file_storage(config), LOGS)
    TaskExecution(MemoryTask(logs(), batch_rows=7), task, policy=FlushPolicy(rows=10)).run()
    rows = pa.concat_tables([decode_records(log.raw(0, 30)) for log in logs()])
    return [{"cluster_id": "memory", "run_id": "run", **row} for row in rows.to_pylist()]


def plain(found: pa.Table) -> list[dict[str, Any]]:
    return found.drop_columns(["source_partition"]).sort_by(BY).to_pylist()


def test_spark_reads_the_folder_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """The whole folder: exactly the rows, with the source partition as a column; nothing of the lease or of files that
    are being written. With mergeSchema, columns that came later are read too, null in older rows."""
    expected = write(TablesConfig(uri=str(tmp_path)))
    for temporary in (tmp_path / "state_records").iterdir():
        (temporary / ".part-x").write_bytes(b"half a file")
    found = spark.read.parquet(str(tmp_path / "state_records"))
    names = {row["source_partition"] for row in found.select("source_partition").distinct().collect()}
    assert names == {MemoryTask([log]).source_partition for log in logs()}
    rows = found.drop("source_partition").toArrow().sort_by(BY).to_pylist()
    assert [{**row} for row in rows] == expected
    assert spark.read.parquet(str(tmp_path / "export_ranges")).groupBy().sum("records_read").first()[0] == 90
    task = ParquetSinkTask(file_storage(TablesConfig(uri=str(tmp_path))), ROWS)
    for number, wider in enumerate(({"a": [1]}, {"a": [2], "b": ["x"]})):
        task.put(SourceBatch(source_partition=SourcePartition("p"), rows={"t": pa.table(wider)}, position=number))
        task.flush()
    merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "t")).select("a", "b").collect()
    assert sorted(map(tuple, merged)) == [(1, None), (2, "x")]


def test_arrow_reads_a_folder_in_a_bucket(s3: S3) -> None:
    """By Arrow's own client for S3: the same rows from objects."""
    config = s3.bucket("read-back")
    expected = write(config)
    keys = {"access_key": s3.root.access, "secret_key": s3.root.secret}
    host = s3.direct_address.removeprefix("http://")
    there = S3FileSystem(endpoint_override=host, scheme="http", region=REGION, **keys)
    folder = config.uri.removeprefix("s3://") + "/state_records"
    assert plain(ds.dataset(folder, filesystem=there, partitioning="hive").to_table()) == expected
