"""The jobs on tables in a bucket: workers read it by themselves, no Hadoop library is there to help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs.test_reconcile import busy
from jobs.world import World
from pyspark.sql import SparkSession
from servers.s3_server import S3

from acktrail.tables.delta.store import Tables
from acktrail_jobs.commands.pipeline_commands import build_history, reconcile
from acktrail_jobs.views import register_views

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

OWN = {"run_id", "cluster_id", "reconciled_at", "built_at", "chunk"}
"""Columns that name runs, not results."""
ORDER = [(name, "ascending") for name in ("record_offset", "state_partition", "group_id", "partition", "first_offset")]


def rows(tables: Tables, name: str) -> list[str]:
    found: list[dict[str, Any]] = tables.read(name).to_pylist()
    return sorted(str({column: value for column, value in row.items() if column not in OWN}) for row in found)


@pytest.mark.full
def test_a_bucket_gives_what_a_folder_gives(s3: S3, tmp_path: Path, spark: SparkSession) -> None:
    """Exported twice, reconciled, its history kept: row by row the same tables in a bucket as in a folder; a view has
    the rows of its table."""
    there, here = World(tmp_path / "unused"), World(tmp_path / "tables")
    there.config = s3.bucket("acktrail")
    there.tables = Tables(there.config)
    for world in (there, here):
        for seed, run_id in enumerate(("r0", "r1")):
            busy(world, seed, groups=6)
            world.observe(run_id)
        reconcile(world.config, "r1")
        build_history(world.config)
    for name in ("state_records", "share_partition_states", "reconciliations", "findings", "delivery_history"):
        assert rows(there.tables, name) == rows(here.tables, name), name
    assert len(rows(here.tables, "delivery_history")) > 100
    register_views(spark, there.config)
    shown, stored = spark.table("delivery_history").toArrow(), there.tables.read("delivery_history")
    assert shown.sort_by(ORDER) == stored.sort_by(ORDER)
