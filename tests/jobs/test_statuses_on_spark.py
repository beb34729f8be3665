"""Statuses counted by Spark's workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.test_statuses import Clock, in_process, trends

from acktrail_jobs.commands.reconcile import reconcile
from acktrail_jobs.pipeline.rebuild import rebuild_statuses

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_spark_counts_what_this_process_counts(tmp_path: Path) -> None:
    """Runs on Spark, one after the other, write what this process makes of the whole history."""
    clock = Clock(tmp_path / "tables")
    for number in range(3):
        clock.work(f"r{number}")
        reconcile(clock.config, f"r{number}", with_history=True)
    before, trend = clock.contents(), trends(clock)
    rebuild_statuses(clock.config, in_process)
    assert trends(clock) == trend
    assert {**clock.contents(), "queue_trends": []} == {**before, "queue_trends": []}
