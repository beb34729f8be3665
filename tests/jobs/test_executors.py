"""Who works on a job: Spark, or this process where a person says so, with the same tables in the end."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from expectations.sample_damage import DAMAGE, RECORDS
from expectations.sample_tables import RUN, fill, plain_outcomes
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import World, batch, busy, key_of, snapshot
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from acktrail.errors import AcktrailError, ConfigurationError, MissingDependency, RetryableError
from acktrail.tables.delta.store import Tables
from acktrail_expectations import evaluation, validation_input
from acktrail_expectations.gate import validate_run
from acktrail_expectations.rule_results import QualityResult
from acktrail_jobs.api import reconcile, verify
from acktrail_jobs.engine import jobs_on, translated
from acktrail_jobs.frames import JobSession, in_process
from acktrail_jobs.local_session import LocalSession
from acktrail_jobs.pieces import balanced_pieces, pieces_of

WRITTEN = (
    *("share_partition_states", "reconciliations", "findings", "delivery_history", "held_states", "replay_memory"),
    *("queue_statuses", "status_changes", "queue_trends", "run_totals"),
)
OF_TABLES = {"records_table", "records_files", "unfinished", "exported"}
"""Columns that name the table which a row comes from."""
MOST_JOBS = 5
"""Three for states, descriptions and verdicts, between which rows are exchanged; one for the history, one for the
changes that statuses are judged by."""


def scattered(world: World) -> None:
    """Working groups, one on two state partitions, one that is only described."""
    busy(world, 3, groups=6)
    key = key_of("scattered")
    world.write(snapshot(key, 2))
    world.write(*[snapshot(key, 2, (batch(2, 3, 4),))] * 5, on=1)
    world.write(snapshot(key, 2), on=2)
    world.described[key_of("described")] = {"start_offset": 3, "lag": 97}
    world.groups["described"] = "Stable"


@pytest.mark.usefixtures("spark")
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
            assert here.plain(name, OF_TABLES) == there.plain(name, OF_TABLES) != [], name
    assert not verify(here.config).differences


def test_a_reconciliation_is_few_jobs_with_names(world: World, spark: SparkSession) -> None:
    """However many tables are read and written; each says its step, how much it reads, and the run. How many files
    there are follows the share partitions, not the executors."""
    scattered(world)
    world.observe("few")
    tracker = spark.sparkContext.statusTracker()
    reconcile(world.config, "few", with_history=True)
    records = world.tables.read("state_records", columns=["offset"]).num_rows
    assert 0 < len(tracker.getJobIdsForGroup("acktrail few")) <= MOST_JOBS
    for name in ("share_partition_states", "reconciliations"):
        assert [file.rows > 0 for file in world.tables.snapshot(name).files()] == [True], name
    store = spark.sparkContext._jsc.sc().statusStore()  # no public way from Python
    jobs = store.jobsList(None)
    names = {job.get() for n in range(jobs.size()) if (job := jobs.apply(n).description()).isDefined()}
    for title in ("replay about {} records and states; judge and write", "build the history of {} records"):
        assert f"acktrail: {title.format(records)} (few)" in names


@pytest.mark.usefixtures("spark")
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
    with jobs_on(master) as found:
        assert isinstance(found.session, LocalSession) == is_here


def test_a_folder_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME without Java is found before Java is started."""
    monkeypatch.setattr("acktrail_jobs.session.running_session", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match="JAVA_HOME"), jobs_on("local[2]") as found:
        assert found.session


def opened(master: str) -> Any:
    """The session there."""
    with jobs_on(master) as found:
        return found.session


@pytest.mark.parametrize(
    "address", ["spark://127.0.0.1:{0}", "spark://127.0.0.1:{0},127.0.0.1:{0}", "sc://127.0.0.1:{0}/;token=t0ken"]
)
def test_silent_master_fails_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java starts for a master at whose address nothing listens; no token is in the message. It may come back; a
    host that is not known will not."""
    monkeypatch.setattr("acktrail_jobs.session.running_session", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RetryableError, match=f"does not answer at .*:{port}: Connection refused") as caught:
        opened(address.format(port))
    assert "t0ken" not in caught.value.with_hint
    assert "ACKTRAIL_SPARK_MASTER" in caught.value.hint
    with pytest.raises(ConfigurationError, match=r"does not answer at spark://no\.invalid"):
        opened("spark://no.invalid:7077")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
            ConfigurationError,
            "no master took",
        ),
        (
            ": org.apache.spark.SparkException: Total size of results is bigger than spark.driver.maxResultSize 1 MiB",
            ConfigurationError,
            r"is larger than spark\.driver\.maxResultSize",
        ),
        (
            ": org.apache.spark.SparkException: Python worker failed to connect back.",
            RetryableError,
            "gave up waiting for a Python worker",
        ),
        (
            ": java.lang.OutOfMemoryError: Java heap space",
            AcktrailError,
            "failed: java.lang.OutOfMemoryError: Java heap space",
        ),
    ],
)
def test_failure_of_java_is_one_line(text: str, kind: type[AcktrailError], message: str) -> None:
    """Also where PySpark hands it on as it is."""
    with pytest.raises(kind, match=message), translated():
        raise Py4JError(f"An error occurred while calling o1.x.\n{text}\n\tat java.lang.Thread.run(Thread.java:840)")


@pytest.mark.parametrize("kind", [PySparkException, Py4JError])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Traceback\nModuleNotFoundError: No module named 'acktrail_jobs'\n SQLSTATE: 38000", "import acktrail_jobs"),
        ('java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory', "run /no/python"),
    ],
)
def test_a_worker_without_acktrail_is_a_clear_error(kind: type[Exception], text: str, said: str) -> None:
    """Where Python workers cannot import acktrail, or PYSPARK_PYTHON names none, the error says what to install where;
    also where Spark's own JVM is what fails."""
    with pytest.raises(ConfigurationError, match=f"executors cannot {said}") as caught, translated():
        raise kind(text)
    assert "install acktrail" in str(caught.value.hint)


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 5))
def test_pieces_are_neighbours_of_about_the_same_weight(weights: list[int], count: int) -> None:
    """Every item once, in order; no more pieces than asked; none that outweighs an equal one by more than its
    heaviest item."""
    items = list(enumerate(weights))
    pieces = balanced_pieces(items, lambda item: item[1], count)
    assert [item for piece in pieces for item in piece] == items
    assert len(pieces) <= count
    assert all(pieces)
    for piece in pieces:
        own = [weight for _, weight in piece]
        assert sum(own) <= sum(weights) / count + max(own)


TOGETHER = (
    "one_state_partition_per_key", "record_once", "state_epoch_monotone", "start_offset_monotone",
    "create_le_write_timestamp", "batch_first_le_last", "update_has_base",
)  # fmt: skip
"""Rules that are broken at once."""


def test_all_executors_find_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged records in several files: counts, examples and reasons of every rule are the same, however the records
    are divided. A key on two state partitions is found, though no executor sees both. Spark had a job for it."""
    damaged = RECORDS
    for rule in TOGETHER:
        damaged = next(harm for harm, rules in DAMAGE["state_records"].rules if rule in rules.split())(damaged)
    config = fill(tmp_path, state_records=damaged.slice(0, 9))
    for begin in range(9, damaged.num_rows, 9):
        Tables(config).append("state_records", damaged.slice(begin, 9))
    assert len(set(damaged["state_partition"].to_pylist())) > 2
    monkeypatch.setattr(evaluation, "_outcomes", plain_outcomes)

    def of(where: JobSession | None) -> set[QualityResult]:
        results = validate_run(Tables(config), RUN, where, every_record=True).results
        return {each for each in results if each.expectation != "state_topic_partition_count_constant"}

    expected = of(None)

    monkeypatch.setattr(validation_input, "_RECORDS_OF_A_PIECE", 1)
    assert of(in_process()) == expected
    assert of(JobSession(lambda: spark, RUN)) == expected
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(f"acktrail {RUN}")
    broken = {each.expectation for each in expected if each.suite == "state_records" and each.success is False}
    assert broken >= {*TOGETHER}


@given(st.lists(st.integers(0, 900), min_size=1, max_size=20), st.integers(1, 1000))
def test_pieces_follow_the_rows(weights: list[int], rows: int) -> None:
    """No piece has more than its rows and one item; there are no more pieces than the rows need."""
    pieces = pieces_of(enumerate(weights), lambda item: item[1], rows)
    assert len(pieces) <= max(1, -(-sum(weights) // rows))
    assert all(sum(weight for _, weight in piece) <= rows + max(weights) for piece in pieces)
