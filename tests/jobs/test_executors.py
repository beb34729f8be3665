"""Who works on a job: Spark, or this process where a person says so, with the same tables in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.test_reconcile import busy
from jobs.world import World, batch, key_of, snapshot
from pyspark.sql import SparkSession

from acktrail.errors import MissingDependency
from acktrail.executors import InProcess, default_executors
from acktrail_jobs.commands.engine import executors_on
from acktrail_jobs.commands.pipeline_commands import reconcile, verify
from acktrail_jobs.spark_executors import SparkExecutors

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

WRITTEN = (
    *("share_partition_states", "reconciliations", "findings", "delivery_history", "held_states", "replay_memory"),
    *("queue_statuses", "status_changes", "queue_trends", "run_totals"),
)
OF_TABLES = {"records_table", "records_files", "unfinished", "exported"}
MOST_JOBS = 4
"""Two for the replay and its verdicts, between which rows are exchanged, one for the history, one for the changes that
statuses are judged by."""


def scattered(world: World) -> None:
    """Working groups, one on two state partitions, one that is only described."""
    busy(world, 3, groups=6)
    key = key_of("scattered")
    world.write(snapshot(key, 2))
    world.write(*[snapshot(key, 2, (batch(2, 3, 4),))] * 5, on=1)
    world.write(snapshot(key, 2), on=2)
    world.described[key_of("described")] = {"start_offset": 3, "lag": 97}
    world.groups["described"] = "Stable"


def plain(world: World, name: str) -> list[str]:
    """Rows of a table without what names the table that they come from."""
    found = world.tables.read(name).to_pylist()
    return sorted(str({column: value for column, value in row.items() if column not in OF_TABLES}) for row in found)


def test_both_make_the_same_tables(tmp_path: Path) -> None:
    """Row by row, also from one run to the next; and what each kept, the other one finds whole."""
    here, there = World(tmp_path / "here"), World(tmp_path / "there")
    for run in ("r0", "r1"):
        for world in (here, there):
            scattered(world)
            world.observe(run)
        ours = reconcile(here.config, run, "in-process", with_history=True)
        theirs = reconcile(there.config, run, with_history=True)
        assert ours == theirs
        for name in WRITTEN:
            assert plain(here, name) == plain(there, name) != [], name
    assert not verify(here.config).differences


def test_a_reconciliation_is_few_jobs_with_names(world: World, spark: SparkSession) -> None:
    """However many tables are read and written; each has the name of its step and the run."""
    scattered(world)
    world.observe("few")
    tracker = spark.sparkContext.statusTracker()
    reconcile(world.config, "few", with_history=True)
    assert 0 < len(tracker.getJobIdsForGroup("acktrail few")) <= MOST_JOBS
    store = spark.sparkContext._jsc.sc().statusStore()  # no public way from Python
    jobs = store.jobsList(None)
    names = {job.get() for n in range(jobs.size()) if (job := jobs.apply(n).description()).isDefined()}
    assert {
        "acktrail: replay the state records, judge and write (few)",
        "acktrail: build the history of records (few)",
    } <= names


@pytest.mark.parametrize(
    ("master", "variable", "is_here"),
    [
        (None, None, False),
        ("local[2]", None, False),
        ("in-process", None, True),
        (None, "in-process", True),
        ("local[2]", "in-process", False),
        ("in-process", "local[2]", True),
    ],
)
def test_the_work_is_done_on_spark_unless_a_person_says_otherwise(
    master: str | None, variable: str | None, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the option, else by the variable."""
    if variable:
        monkeypatch.setenv("ACKTRAIL_SPARK_MASTER", variable)
    with executors_on(master)("r0") as found:
        assert isinstance(found, InProcess if is_here else SparkExecutors)


def test_a_folder_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME without Java is found before Java is started."""
    monkeypatch.setattr("acktrail_jobs.session.running_session", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match="JAVA_HOME"), executors_on("local[2]")("r0") as found:
        assert found.count


def test_an_installation_without_executors_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acktrail.executors.registered", lambda _: {})
    with pytest.raises(MissingDependency, match=r"names no executors .*`spark` of acktrail\.executors"):
        default_executors()
