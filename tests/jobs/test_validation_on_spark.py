"""Rules on state records, evaluated by Spark's executors, by one process and by as many as there are state
partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from expectations.sample_damage import DAMAGE, RECORDS
from expectations.sample_tables import RUN, fill
from pyspark.sql import SparkSession

from acktrail.executors import Executors, InProcess, JobStep, Work
from acktrail.tables.delta.store import Tables
from acktrail_expectations import run_data
from acktrail_expectations.gate import QualityResult, validate_run
from acktrail_jobs.spark_executors import SparkExecutors

TOGETHER = (
    "one_state_partition_per_key", "record_once", "state_epoch_monotone", "start_offset_monotone",
    "create_le_write_timestamp", "batch_first_le_last", "update_has_base",
)  # fmt: skip
"""Rules that are broken at once."""


class _EachAlone(InProcess):
    """Every state partition is a share of its own, the last one first."""

    count = 50

    def run(self, step: JobStep, shares: Sequence[Any], work: Work) -> dict[str, pa.Table]:
        assert len(shares) > 2
        return super().run(step, shares[::-1], work)


def test_all_executors_find_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged records in several files: counts, examples and reasons of every rule are the same, however the records
    are shared out. A key on two state partitions is found, though no executor sees both. Spark had a job for it."""
    damaged = RECORDS
    for rule in TOGETHER:
        damaged = next(harm for harm, rules in DAMAGE["state_records"].rules if rule in rules.split())(damaged)
    config = fill(tmp_path, state_records=damaged.slice(0, 9))
    for begin in range(9, damaged.num_rows, 9):
        Tables(config).append("state_records", damaged.slice(begin, 9))
    assert len(set(damaged["state_partition"].to_pylist())) > 2
    monkeypatch.setattr(run_data, "_FEW_RECORDS", 0)

    def of(executors: Executors) -> set[QualityResult]:
        results = validate_run(Tables(config), RUN, executors, every_record=True).results
        return {each for each in results if each.expectation != "state_topic_partition_count_constant"}

    expected = of(InProcess())

    assert of(_EachAlone()) == expected
    assert of(SparkExecutors(lambda: spark, RUN)) == expected
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(f"acktrail {RUN}")
    broken = {each.expectation for each in expected if each.suite == "state_records" and each.success is False}
    assert broken >= {*TOGETHER}
