"""The frames of the pipeline in a session of one's own: what a run would write, and nothing is written."""

from __future__ import annotations

import pyarrow as pa
from jobs.test_executors import scattered
from jobs.world import World
from pyspark.sql import SparkSession

from acktrail.model.share_partition import KEY_COLUMNS
from acktrail_jobs import api


def rows_of(table: pa.Table, columns: list[str]) -> list[str]:
    return sorted(map(repr, table.select(columns).to_pylist()))


def test_the_frames_of_a_notebook_are_what_a_run_writes(world: World, spark: SparkSession) -> None:
    """States, verdicts and changes, before the first run and after it; SQL works on them like on any frame."""
    scattered(world)
    world.observe("r0")
    states, verdicts, changes = (
        frame.toArrow()
        for frame in (
            api.states(spark, world.config),
            api.verdicts(spark, world.config),
            api.changes(spark, world.config),
        )
    )
    counted = {
        row.verdict: row["count"] for row in api.verdicts(spark, world.config).groupBy("verdict").count().collect()
    }
    assert not any(world.tables.exists(name) for name in ("reconciliations", "delivery_history"))

    summary = api.reconcile(world.config, "r0", "in-process", with_history=True)
    assert counted == summary.verdicts
    stored = world.tables.read("reconciliations")
    own = [*KEY_COLUMNS, "verdict", "reason", "durable_start_offset", "log_start_offset", "durable_lag"]
    assert rows_of(verdicts, own) == rows_of(stored, own)
    history = world.tables.read("delivery_history")
    own = [*KEY_COLUMNS, "record_offset", "first_offset", "last_offset", "delivery_state", "delivery_count"]
    assert rows_of(changes, own) == rows_of(history, own) != []
    assert {*states["group_id"].to_pylist()} == {*stored["group_id"].to_pylist()} - {"described"}
    assert rows_of(api.states(spark, world.config).toArrow(), [*KEY_COLUMNS, "start_offset"]) == rows_of(
        states, [*KEY_COLUMNS, "start_offset"]
    )
