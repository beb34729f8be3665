"""The same jobs on tables in a bucket, where workers read by themselves and no Hadoop library is there to help; and on
a cluster that runs the driver, too (also ``test_event_log``, ``test_session``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs.world import World, busy, twins
from pyspark.sql import SparkSession
from servers.s3_server import S3
from servers.yarn_cluster import SPARK_JARS, running_yarn

from acktrail.config import environment
from acktrail.tables.delta.store import Tables
from acktrail_jobs.commands.pipeline_commands import build_history, reconcile
from acktrail_jobs.views import register_views

pytestmark = pytest.mark.usefixtures("spark")

ORDER = [(name, "ascending") for name in ("record_offset", "state_partition", "group_id", "partition", "first_offset")]


@pytest.mark.full
def test_a_bucket_gives_what_a_folder_gives(s3: S3, tmp_path: Path, spark: SparkSession) -> None:
    """Exported twice, reconciled, its history kept: row by row the same tables in a bucket as in a folder; a view has
    the rows of its table."""
    there, here = World(tmp_path / "unused"), World(tmp_path / "tables")
    there.config = s3.bucket("acktrail")
    there.tables = Tables(there.config)
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
            done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=400, check=False)
            assert done.returncode == code, done.stderr[-3000:]
    for name in ("share_partition_states", "reconciliations", "findings", "delivery_history", "queue_statuses"):
        assert there.plain(name) == here.plain(name), name
    (check,) = there.rows("reconcile_checks")
    assert check["run_id"] == "r0"


def test_a_worker_without_acktrail_is_a_clear_error() -> None:
    """Where Python workers cannot import acktrail, the error says what to install where."""
    from pyspark.errors import PySparkException

    from acktrail.errors import ConfigurationError
    from acktrail_jobs.commands.engine import translated

    with pytest.raises(ConfigurationError, match="executors cannot import acktrail_jobs") as caught, translated():
        raise PySparkException("Traceback\nModuleNotFoundError: No module named 'acktrail_jobs'\n SQLSTATE: 38000")
    assert "install acktrail" in str(caught.value.hint)
