"""The tables by SQL: each is a temporary view of a Spark session, at the version that it has now.

Spark itself reads tables in a folder, no more columns and row groups than a query needs: with io.delta's connector
where the session has it, else the files that the Delta log names for the version. Of a bucket acktrail's own reader
gives Spark the rows of each file: Spark would need Hadoop's library for the bucket, and credentials in its settings.

    versions = register_views(spark, TablesConfig(uri="/data/acktrail"))    # {"findings": 41, "key_audits": None, ...}
    spark.sql("SELECT rule, count(*) FROM findings GROUP BY rule").show()
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import CHUNK
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.sql.views import VIEWS, view_text
from acktrail_jobs.frames import JobSession, frame_of

_CONNECTOR: Final = "io.delta.sql.DeltaSparkSessionExtension"
_PATTERN: Final = re.compile(r"([\[\]{}*?\\])")
"""What Hadoop takes for a pattern of paths."""
_IN_LOG: Final = f"partition.{CHUNK}"


def register_views(spark: SparkSession, config: TablesConfig) -> dict[str, int | None]:
    """Make a temporary view of each table, and those for people (``acktrail.tables.sql.views``); gives the version of
    each table. None: it was never created, the view has no rows. Reads
    the logs of the tables and no rows: what came since shows with the next call. A view whose files were removed since
    (``acktrail tables maintain``) fails. Raises as ``Tables`` does."""
    tables = Tables(config)
    snapshots = {name: tables.snapshot(name) for name in TABLES}
    for name, snapshot in snapshots.items():
        _frame(spark, config, name, snapshot).createOrReplaceTempView(name)
    for name in VIEWS:
        spark.sql(view_text(name, "spark")).createOrReplaceTempView(name)
    return {name: None if found is None else found.version for name, found in snapshots.items()}


def _frame(spark: SparkSession, config: TablesConfig, name: str, snapshot: TableSnapshot | None) -> DataFrame:
    """The rows of a table in the columns and types of its schema. The number of a chunk is in the log, in no file."""
    schema = from_arrow_schema(TABLES[name])
    # The dataset, and not only the log: it refuses what another writer stores beside the files (deletion vectors).
    if snapshot is None or not snapshot.dataset().files:
        return spark.createDataFrame([], schema)
    chunks = {path: found[_IN_LOG] for path, found in snapshot.statistics([_IN_LOG]).items()}
    if not snapshot.is_local:
        return frame_of(JobSession(lambda: spark), list(chunks.items()), partial(_rows, config, name), TABLES[name])
    if has_connector(spark):
        reader = spark.read.format("delta").option("versionAsOf", snapshot.version)
        return reader.load(f"file:{snapshot.place.uri}").to(schema)
    rows = rows_of_files(spark, snapshot, chunks)
    if CHUNK not in schema.names:
        return rows
    pairs = f.create_map(*(f.lit(each) for path, chunk in chunks.items() for each in (Path(path).name, chunk)))
    return rows.withColumn(CHUNK, pairs[f.col("_metadata.file_name")].cast("long"))


def has_connector(spark: SparkSession) -> bool:
    """Whether a session, also one of Spark Connect, reads ``format("delta")``. It asks for the setting: without this
    extension io.delta's connector refuses to read, even where its jar is on the class path."""
    return _CONNECTOR in spark.conf.get("spark.sql.extensions", "")


def rows_of_files(spark: SparkSession, snapshot: TableSnapshot, paths: Iterable[str]) -> DataFrame:
    """The rows of some files of a table in a folder, read by Spark. A missing or damaged file fails the job, even where
    the session's settings let Spark ignore such files."""
    reader = spark.read.schema(from_arrow_schema(TABLES[snapshot.name]))
    files = (_PATTERN.sub(r"\\\1", f"file:{snapshot.place.uri}/{path}") for path in paths)
    return reader.options(ignoreCorruptFiles=False, ignoreMissingFiles=False).parquet(*files)


def _rows(config: TablesConfig, name: str, file: tuple[str, int | None]) -> Iterator[pa.Table]:
    """The rows of one file and its chunk."""
    path, chunk = file
    for batch in Tables(config).file_batches(name, [path], sparing=True):
        rows = pa.Table.from_batches([batch])
        if chunk is not None:
            numbers = pa.repeat(pa.scalar(chunk, pa.int64()), rows.num_rows)
            rows = rows.set_column(rows.column_names.index(CHUNK), CHUNK, numbers)
        yield rows
