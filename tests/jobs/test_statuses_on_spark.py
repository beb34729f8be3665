"""Statuses counted by Spark's executors."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.test_statuses import Clock, contents, trends

from acktrail_jobs.commands.pipeline_commands import reconcile

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_spark_counts_what_this_process_counts(tmp_path: Path) -> None:
    """Runs on Spark, one after the other, write what this process writes."""
    clock, other = Clock(tmp_path / "spark"), Clock(tmp_path / "process")
    for number in range(2):
        for each, master in ((clock, None), (other, "in-process")):
            each.work(f"r{number}")
            reconcile(each.config, f"r{number}", master, with_history=True)
    assert trends(clock) == trends(other) != []
    assert {**contents(clock), "queue_trends": []} == {**contents(other), "queue_trends": []}
