"""Who works on a job: this process for small inputs, Spark for others, with the same tables in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.test_reconcile import busy
from jobs.world import World, batch, key_of, snapshot
from pyspark.sql import SparkSession

from acktrail.errors import ConfigurationError, MissingDependency
from acktrail.workers import InProcessWorkers
from acktrail_jobs.commands import open_workers
from acktrail_jobs.commands.open_workers import workers_on
from acktrail_jobs.commands.reconcile import reconcile
from acktrail_jobs.commands.verify import verify
from acktrail_jobs.spark_workers import SparkWorkers

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

WRITTEN = ("share_partition_states", "reconciliations", "findings", "delivery_history", "held_states", "replay_memory")
OF_TABLES = {"records_table", "records_files", "unfinished", "exported"}
MOST_JOBS = 3
"""One for the replay and its verdicts, one for the history, one for the changes that statuses are judged by."""


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own, where no session runs."""
    monkeypatch.setattr(open_workers, "_has_session", lambda: False)
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "ACKTRAIL_DRIVER_ROWS"):
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.full
def test_both_make_the_same_tables(tmp_path: Path, no_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row, also from one run to the next; and what each kept, the other one finds whole."""
    here, there = World(tmp_path / "here"), World(tmp_path / "there")
    for run in ("r0", "r1"):
        for world in (here, there):
            scattered(world)
            world.observe(run)
        with workers_on(None)(10) as found:
            assert isinstance(found, InProcessWorkers)
        ours = reconcile(here.config, run, with_history=True)
        monkeypatch.setenv("ACKTRAIL_DRIVER_ROWS", "0")
        monkeypatch.setattr(open_workers, "_has_session", lambda: True)
        theirs = reconcile(there.config, run, with_history=True)
        assert ours == theirs
        for name in WRITTEN:
            assert plain(here, name) == plain(there, name) != [], name
        assert not verify(here.config).differences
        monkeypatch.delenv("ACKTRAIL_DRIVER_ROWS")
        monkeypatch.setattr(open_workers, "_has_session", lambda: False)
        assert not verify(there.config).differences


def test_a_reconciliation_is_few_jobs(world: World, spark: SparkSession) -> None:
    """However many tables are read and written."""
    scattered(world)
    world.observe("r0")
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    reconcile(world.config, "r0", with_history=True)
    assert 0 < len(tracker.getJobIdsForGroup(None)) - before <= MOST_JOBS


@pytest.mark.parametrize(
    ("master", "rows_to_read", "variables", "is_here"),
    [
        (None, 50_000, {}, True),
        (None, 50_001, {}, False),
        ("local[2]", 10, {}, True),
        ("local", 10, {}, True),
        ("local-cluster[2,1,1024]", 10, {}, False),
        ("spark://host:7077", 10, {}, False),
        ("sc://host:15002", 10, {}, False),
        (None, 10, {"SPARK_REMOTE": "sc://host:15002"}, False),
        (None, 10, {"PYSPARK_GATEWAY_PORT": "1"}, False),
        (None, 10, {"ACKTRAIL_DRIVER_ROWS": "9"}, False),
        (None, 0, {"ACKTRAIL_DRIVER_ROWS": "0"}, True),
    ],
)
def test_small_inputs_need_no_session(
    master: str | None,
    rows_to_read: int,
    variables: dict[str, str],
    is_here: bool,
    no_spark: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the person who runs it says where Spark is; a session that runs is used in any case."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with workers_on(master)(rows_to_read) as found:
        assert isinstance(found, InProcessWorkers if is_here else SparkWorkers)
    monkeypatch.undo()
    with workers_on(master)(rows_to_read) as found:
        assert isinstance(found, SparkWorkers)


def test_a_wrong_setting_is_refused_early(no_spark: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A number that is none; a JAVA_HOME without Java, though nothing here needs Java yet."""
    monkeypatch.setenv("ACKTRAIL_DRIVER_ROWS", "many")
    with pytest.raises(ConfigurationError, match="is no number"), workers_on(None)(1):
        pass
    monkeypatch.delenv("ACKTRAIL_DRIVER_ROWS")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match="JAVA_HOME"), workers_on(None)(1):
        pass
