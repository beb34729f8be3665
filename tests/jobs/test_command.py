"""``acktrail run reconcile`` and spark-submit, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.world import World, batch, key_of, snapshot

from acktrail.config import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    # No PYSPARK_PYTHON for acktrail itself: it must find its own interpreter.
    if command[0] == BIN / "spark-submit":
        changes["PYSPARK_PYTHON"] = sys.executable
    surroundings = environment(**changes)
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=280, env=surroundings, cwd="/")


@pytest.mark.full
def test_results_are_all_there_is_on_stdout(world: World) -> None:
    """By spark-submit, as by ``acktrail`` (``test_event_log``)."""
    world.write(snapshot(key_of("a"), 0, (batch(0, 0, 4, 5),)))
    world.observe("r1")
    command = (
        BIN / "spark-submit",
        ROOT / "spark_jobs" / "submit.py",
        "run",
        "reconcile",
        "--tables",
        world.config.uri,
    )
    done = run(*command, "--json", ACKTRAIL_SPARK_MASTER="")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["verdicts"] == {"match": 1}
    assert summary["ran_on"].startswith("Spark ")
    assert summary["findings"] == {"poison_records_archived": 1}
    assert world.verdicts("r1") == {key_of("a").coordinator_key: "match"}


def test_what_a_person_reads(world: World) -> None:
    """A line about the run and a table of counts, with names that cannot steer a terminal."""
    world.write(snapshot(key_of("a")))
    world.observe("r\x1b[2J")
    done = run(BIN / "acktrail", "run", "reconcile", "--tables", world.config.uri)
    assert done.returncode == 0, done.stderr
    assert "1 share partitions" in done.stdout
    assert "match" in done.stdout
    assert "\x1b" not in done.stdout


def test_an_error_is_one_line(world: World) -> None:
    """An observation that does not exist: the nearest name, exit code 2, no traceback, nothing on stdout, no Spark."""
    world.write(snapshot(key_of("a")))
    world.observe("nightly-1")
    done = run(BIN / "acktrail", "run", "reconcile", "--tables", world.config.uri, "--run-id", "nightly-2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "acktrail: unknown observation 'nightly-2' (did you mean 'nightly-1'?)",
    ]


def test_a_wrong_java_is_one_line(world: World, tmp_path: Path) -> None:
    """Without a Java that runs Spark: what is wrong and what to do, exit code 3, nothing written."""
    world.write(snapshot(key_of("a")))
    world.observe("r1")
    done = run(
        BIN / "acktrail",
        "run",
        "reconcile",
        "--tables",
        world.config.uri,
        JAVA_HOME=str(tmp_path),
        ACKTRAIL_SPARK_MASTER="",
    )
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path) in line
    assert "JAVA_HOME" in line
    assert not world.tables.exists("share_partition_states")
