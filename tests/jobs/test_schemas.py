"""Spark's schemas against the tables'."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from acktrail.columnar.rate_counts import RATES
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.workers.worker_results import PARCELS_ARROW
from acktrail_jobs import spark_schemas
from acktrail_jobs.replay_source import REPLAYED_ARROW


@pytest.mark.parametrize(
    ("spark_schema", "arrow_schema"),
    [
        (spark_schemas.SHARE_PARTITION_STATES, TABLES["share_partition_states"]),
        (spark_schemas.REPLAYED, REPLAYED_ARROW),
        (spark_schemas.PARCELS, PARCELS_ARROW),
        (spark_schemas.RATES, RATES),
    ],
)
def test_spark_and_arrow_name_the_same_columns(spark_schema: StructType, arrow_schema: pa.Schema) -> None:
    """Same names, order and types: what workers write, Spark carries and the tables keep is one thing."""
    assert spark_schema == from_arrow_schema(arrow_schema)
