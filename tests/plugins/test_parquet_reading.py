"""Spark reads the folder of a table that ``ParquetSink`` wrote, and gets its rows, each once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from plugins.test_parquet_sink import BY, a_task, some_logs, write
from pyspark.sql import SparkSession
from samples.memory_source import MemoryTask

from acktrail.config import TablesConfig
from acktrail.connect.source_batches import SourceBatch, SourcePartition


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_reads_the_folder_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """The whole folder: exactly the rows, with the source partition as a column; nothing of the lease or of files that
    are being written. With mergeSchema, columns that came later are read too, null in older rows."""
    expected = write(TablesConfig(uri=str(tmp_path)))
    for temporary in (tmp_path / "state_records").iterdir():
        (temporary / ".part-x").write_bytes(b"half a file")
    found = spark.read.parquet(str(tmp_path / "state_records"))
    names = {row["source_partition"] for row in found.select("source_partition").distinct().collect()}
    assert names == {MemoryTask([log]).source_partition for log in some_logs()}
    rows = found.drop("source_partition").toArrow().sort_by(BY).to_pylist()
    assert [{**row} for row in rows] == expected
    assert spark.read.parquet(str(tmp_path / "export_ranges")).groupBy().sum("records_read").first()[0] == 99
    task = a_task(tmp_path)
    for number, wider in enumerate(({"a": [1]}, {"a": [2], "b": ["x"]})):
        task.put(SourceBatch(source_partition=SourcePartition("p"), rows={"t": pa.table(wider)}, position=number))
        task.flush()
    merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "t")).select("a", "b").collect()
    assert sorted(map(tuple, merged)) == [(1, None), (2, "x")]
