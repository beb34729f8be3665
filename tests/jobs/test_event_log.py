"""What a Spark engineer sees of a run, and what a lost executor does to it: real executors, real event logs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from jobs.test_object_storage import rows
from jobs.test_reconcile import busy
from jobs.world import World

from acktrail.config import environment
from acktrail_jobs.commands.pipeline_commands import reconcile

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ACKTRAIL = Path(sys.executable).with_name("acktrail")
WRITTEN = ("share_partition_states", "reconciliations", "findings", "delivery_history", "queue_statuses")
STEPS = {"replay the state records, judge and write", "build the history of records"}


def started(world: World, master: str, *settings: str) -> subprocess.Popen[str]:
    submitted = " ".join(f"--conf {each}" for each in settings)
    return subprocess.Popen(
        [ACKTRAIL, "run", "reconcile", "--tables", world.config.uri, "--master", master, "--json"],
        env=environment(PYSPARK_SUBMIT_ARGS=f"{submitted} pyspark-shell", PYSPARK_PYTHON=sys.executable),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_event_log_tells_the_steps_apart(tmp_path: Path) -> None:
    """By name and run; each hands over rows, and bytes that executors returned. Stdout has one JSON object that says
    what the tables hold; Spark's noise goes elsewhere."""
    world = World(tmp_path / "tables")
    busy(world, 1, groups=6)
    world.observe("r0")
    log = tmp_path / "log"
    log.mkdir()
    settings = ("enabled=true", "compress=false", f"dir={log.as_uri()}")
    run = started(world, "local[2]", *(f"spark.eventLog.{each}" for each in settings))
    out, err = run.communicate(timeout=280)
    assert run.returncode == 0, err
    summary = json.loads(out)
    assert (summary["run_id"], summary["verdicts"]) == ("r0", Counter(world.verdicts("r0").values()))
    assert summary["ran_on"].startswith("Spark ")
    assert summary["findings"] == Counter(rule for rule, _ in world.findings("r0")) != {}
    events = [json.loads(line) for file in log.rglob("events_*") for line in file.read_text().splitlines()]
    names = {
        event["Stage IDs"][-1]: _description(event) for event in events if event["Event"] == "SparkListenerJobStart"
    }
    assert {f"acktrail: {step} (r0)" for step in STEPS} <= set(names.values())
    for stage, name in names.items():
        sums = _sums(events, stage)
        assert sums.get("number of output rows", 0) > 0, (name, sums)
        if "replay" not in name:
            assert sums.get("data returned from Python workers", 0) > 0, (name, sums)


def _description(event: dict[str, Any]) -> str:
    found: str = event["Properties"]["spark.job.description"]
    return found


def _sums(events: list[dict[str, Any]], stage: int) -> dict[str, int]:
    """The named sums of one stage."""
    (info,) = [
        event["Stage Info"]
        for event in events
        if event["Event"] == "SparkListenerStageCompleted" and event["Stage Info"]["Stage ID"] == stage
    ]
    return {each["Name"]: int(each["Value"]) for each in info["Accumulables"] if str(each["Value"]).isdigit()}


@pytest.mark.full
def test_a_lost_executor_changes_nothing(tmp_path: Path) -> None:
    """An executor is killed while its Python process works: its tasks are done again elsewhere, each row is there once,
    and the tables are those of a run without executors. Tasks may run twice (speculation)."""
    there, here = World(tmp_path / "there"), World(tmp_path / "here")
    for world in (there, here):
        busy(world, 1, groups=6)
        world.observe("r0")
    reconcile(here.config, "r0", "in-process", with_history=True)
    run = started(there, "local-cluster[2,1,1024]", "spark.speculation=true", "spark.speculation.interval=50ms")
    killed: list[int] = []
    watch = threading.Thread(target=_kill_one, args=(run, killed))
    watch.start()
    out, err = run.communicate(timeout=280)
    watch.join()
    assert run.returncode == 0, err
    assert killed
    assert json.loads(out)["share_partitions"] > 5
    for name in WRITTEN:
        assert rows(there.tables, name) == rows(here.tables, name) != [], name


def _kill_one(run: subprocess.Popen[str], killed: list[int]) -> None:
    """Kill the first executor that has a Python process at work."""
    driver = psutil.Process(run.pid)
    while not killed and run.poll() is None:
        for process in _descendants(driver):
            try:
                is_executor = "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
                if is_executor and any("pyspark.daemon" in " ".join(own.cmdline()) for own in process.children()):
                    process.kill()
                    killed.append(process.pid)
                    return
            except psutil.Error:
                continue


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return found
