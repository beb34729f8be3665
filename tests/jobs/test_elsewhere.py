"""The same jobs on tables in a bucket, where workers read by themselves and no Hadoop library is there to help; on a
cluster that runs the driver, too; with executors of which one is lost (also ``test_session``). What an ordinary user of
Spark reads in the tables through Spark's own Delta connector."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import psutil
import pyarrow.feather as feather
import pyspark
import pytest
from drivers.own_process import finished, printed
from jobs.test_notebook_frames import rows_of
from jobs.test_session import TOKEN, served
from jobs.world import World, busy, twins
from pyspark.sql import SparkSession
from servers.fetched_jars import fetched_jars
from servers.s3_server import S3

from acktrail.config import environment, java_home
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.java import find_java
from acktrail.tables.delta.store import Tables
from acktrail_jobs.api import build_history, reconcile
from acktrail_jobs.views import register_views

pytestmark = pytest.mark.spark

WRITTEN = ("share_partition_states", "reconciliations", "findings", "delivery_history", "queue_statuses")
ORDER = [(name, "ascending") for name in ("record_offset", "state_partition", "group_id", "partition", "first_offset")]


@pytest.mark.full
def test_a_bucket_gives_what_a_folder_gives(s3: S3, tmp_path: Path, spark: SparkSession) -> None:
    """Exported twice, reconciled, its history kept: row by row the same tables in a bucket as in a folder; a view has
    the rows of its table."""
    there, here = World(tmp_path / "unused"), World(tmp_path / "tables")
    there.config = s3.bucket("acktrail")
    there.tables = Tables(there.config)
    there.tables.begin()
    for world in (there, here):
        for seed, run_id in enumerate(("r0", "r1")):
            busy(world, seed, groups=6)
            world.observe(run_id)
        reconcile(world.config, "r1")
        build_history(world.config)
    for name in ("state_records", "share_partition_states", "reconciliations", "findings", "delivery_history"):
        assert there.plain(name) == here.plain(name), name
    assert len(here.rows("delivery_history")) > 100
    register_views(spark, there.config)
    shown, stored = spark.table("delivery_history").toArrow(), there.tables.read("delivery_history")
    assert shown.sort_by(ORDER) == stored.sort_by(ORDER)


SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
_PROGRAM: Final = Path(__file__).with_name("YarnCluster.java")
_JARS: Final = {
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"): (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"): "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"): "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    ("org.bouncycastle", "bcutil-jdk18on", "1.82"): "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    ("org.junit.jupiter", "junit-jupiter-api", "5.12.2"): (
        "0b9ca728e4bcd9adc57f29deb9556ff9ed5e08b4e8843b875aba4e4e3e04f092"
    ),
    ("org.junit.platform", "junit-platform-commons", "1.12.2"): (
        "e683a01e85dfabea520c056ac6015a6162756e602ec653c0da85e233f0afbc18"
    ),
    ("org.opentest4j", "opentest4j", "1.3.0"): "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
}
"""Of the Hadoop whose client PySpark ships, and what its small cluster loads. By coordinates, the sha256."""
_START_S: Final = 180.0


@contextmanager
def running_yarn(folder: Path) -> Iterator[Path]:
    """The folder with ``yarn-site.xml``, for HADOOP_CONF_DIR. What containers write is in `folder`, too. Skips the test
    where the jars cannot be fetched."""
    jars, site = fetched_jars("yarn", _JARS), folder / "conf"
    site.mkdir()
    command = [
        *(find_java(java_home()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
        *("-cp", f"{jars}/*:{SPARK_JARS}/*", _PROGRAM, site),
    ]
    with (folder / "yarn.log").open("w") as log, subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + _START_S
            while not (site / "yarn-site.xml").exists():
                assert process.poll() is None, (folder / "yarn.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "YARN does not start"
                time.sleep(0.2)
            yield site
        finally:
            process.communicate()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_on_yarn_gives_the_same(tmp_path: Path) -> None:
    """``spark-submit`` in cluster mode: the command is the driver, in a container. It waits, and ends as the run."""
    there, here = twins(tmp_path)
    reconcile(here.config, "r0", "in-process", with_history=True)
    python = ("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON")
    settings = {
        "spark.yarn.jars": f"local:{SPARK_JARS}/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.hadoop.fs.defaultFS": "file:///",
        "spark.executor.instances": "1",
        **dict.fromkeys(("spark.driver.memory", "spark.executor.memory"), "512m"),
        **dict.fromkeys(python, sys.executable),
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "yarn", "--deploy-mode", "cluster", *words]
    script = Path(__file__).parents[2] / "spark_jobs/submit.py"
    with running_yarn(tmp_path) as site:
        known = environment(HADOOP_CONF_DIR=str(site), PYSPARK_PYTHON=sys.executable)
        for run_id, code in (("r0", 0), ("never-observed", 1)):
            command = [*submit, script, "run", "reconcile", "--tables", there.config.uri, "--run-id", run_id]
            done = finished(*command, env=known, timeout=400)
            assert done.returncode == code, done.stderr[-3000:]
    for name in WRITTEN:
        assert there.plain(name) == here.plain(name), name
    (check,) = there.rows("reconcile_checks")
    assert check["run_id"] == "r0"


ACKTRAIL = Path(sys.executable).with_name("acktrail")


def started(world: World, master: str, *settings: str) -> subprocess.Popen[str]:
    submitted = " ".join(f"--conf {each}" for each in settings)
    return subprocess.Popen(
        [ACKTRAIL, "run", "reconcile", "--tables", world.config.uri, "--master", master, "--json"],
        env=environment(PYSPARK_SUBMIT_ARGS=f"{submitted} pyspark-shell", PYSPARK_PYTHON=sys.executable),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
@pytest.mark.slow
def test_a_lost_executor_changes_nothing(tmp_path: Path) -> None:
    """An executor is killed while its Python process works: its tasks are done again elsewhere, each row is there once,
    and the tables are those of a run without executors. Tasks may run twice (speculation). Stdout has one JSON object
    that says what the tables hold; Spark's noise goes elsewhere."""
    there, here = twins(tmp_path)
    reconcile(here.config, "r0", "in-process", with_history=True)
    run = started(there, "local-cluster[2,1,1024]", "spark.speculation=true", "spark.speculation.interval=50ms")
    killed: list[int] = []
    watch = threading.Thread(target=_kill_one, args=(run, killed))
    watch.start()
    out, err = run.communicate(timeout=280)
    watch.join()
    assert run.returncode == 0, err
    assert killed
    summary = json.loads(out)
    assert summary["ran_on"].startswith("Spark ")
    assert (summary["share_partitions"] > 5, summary["verdicts"]) == (True, Counter(there.verdicts("r0").values()))
    assert summary["findings"] == Counter(rule for rule, _ in there.findings("r0")) != {}
    for name in WRITTEN:
        assert there.plain(name) == here.plain(name) != [], name


def _kill_one(run: subprocess.Popen[str], killed: list[int]) -> None:
    """Kill the first executor that has a Python process at work."""
    driver = psutil.Process(run.pid)
    while not killed and run.poll() is None:
        for process in _descendants(driver):
            try:
                is_executor = "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
                if is_executor and any("worker_daemon" in " ".join(own.cmdline()) for own in process.children()):
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


READING: Final = Path(__file__).with_name("delta_reading.py")
DELTA: Final = "4.4.0"
CONNECTORS: Final = {
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}
"""The sha256 of io.delta's connector, by the Spark that it is for."""
STORAGE: Final = "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"


def with_connector() -> str:
    """Options of Spark for a session that has the connector. Skips the test where there is none for this Spark."""
    release = pyspark.__version__.rpartition(".")[0]
    if release not in CONNECTORS:
        pytest.skip(f"io.delta has no connector for Spark {release}")
    wanted = {f"delta-spark_{release}_2.13": CONNECTORS[release], "delta-storage": STORAGE}
    jars = fetched_jars(f"delta-{release}", {("io.delta", name, DELTA): digest for name, digest in wanted.items()})
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    words = (f"--conf {name}={value}" for name, value in settings.items())
    return f"--jars {','.join(map(str, sorted(jars.iterdir())))} {' '.join(words)} pyspark-shell"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("is_connect", [False, True])
def test_views_are_the_same_with_and_without_the_delta_connector(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_connect: bool
) -> None:
    """All tables of a reconciled export, with history and statuses, as acktrail's own reader gives them; at the
    versions that the views had. With Spark Connect the connector is the server's."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", with_connector())
    monkeypatch.setenv(TOKEN, "known")
    world = World(tmp_path / "the {tables}")
    busy(world, 1, groups=6)
    world.observe("r0")
    reconcile(world.config, "r0", "in-process", with_history=True)
    versions = {
        name: [version, True] for name, version in register_views(spark, world.config).items() if version is not None
    }
    with served() if is_connect else nullcontext() as server:
        master = server.url if server else "local[2]"
        found = json.loads(printed(sys.executable, READING, world.config.uri, tmp_path, master))
    assert found == versions
    assert len(found) > 8
    for name in found:
        stored, read = world.tables.read(name), feather.read_table(tmp_path / f"{name}.arrow")
        assert read.column_names == TABLES[name].names
        ours, theirs, without = (
            rows_of(rows, read.column_names) for rows in (stored, read, spark.table(name).toArrow())
        )
        assert theirs == ours == without, name
