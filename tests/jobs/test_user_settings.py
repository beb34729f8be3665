"""Spark settings that the user makes stay; acktrail's own are defaults below them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acktrail.config import environment
from acktrail_jobs.session import spark_session, user_settings

SCRIPT = Path(__file__).with_name("session_settings.py")
SUBMIT = Path(sys.executable).with_name("spark-submit")
SHUFFLE, UI, ZONE = "spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.sql.session.timeZone"
JAVA = "spark.driver.extraJavaOptions"


def settings(*command: str | Path, is_quiet: bool = False, **changes: str) -> dict[str, str]:
    surroundings = environment(PYSPARK_PYTHON=sys.executable, **changes)
    names = (SHUFFLE, UI, ZONE, JAVA)
    done = subprocess.run(
        [*command, SCRIPT, *names], env=surroundings, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (is_quiet and ("incubator" in done.stderr or "default log level" in done.stderr)), done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
def test_settings_of_spark_submit_stay(tmp_path: Path) -> None:
    """What --conf and the defaults file of spark-submit say is in force; the rest are acktrail's defaults."""
    (tmp_path / "spark-defaults.conf").write_text(f"{UI} true\n")
    found = settings(SUBMIT, "--conf", f"{SHUFFLE}=64", "--conf", "spark.ui.port=0", SPARK_CONF_DIR=str(tmp_path))
    assert (found[SHUFFLE], found[UI], found[ZONE]) == ("64", "true", "UTC")


@pytest.mark.spark
@pytest.mark.slow
def test_settings_of_the_defaults_file_stay(tmp_path: Path) -> None:
    """The same where acktrail starts Spark itself, also for the options of its Java. Its banner is nowhere."""
    (tmp_path / "spark-defaults.conf").write_text(f"# mine\n{SHUFFLE}  64\n{JAVA}=-Dmine=1\n")
    found = settings(sys.executable, is_quiet=True, SPARK_CONF_DIR=str(tmp_path))
    assert (found[SHUFFLE], found[UI], found[ZONE]) == ("64", "false", "UTC")
    assert "-Dmine=1" in found[JAVA]
    assert "log4j2" not in found[JAVA]


@pytest.mark.spark
def test_a_session_that_runs_is_used_as_it_is(spark: SparkSession) -> None:
    """Its settings stay, it is not stopped, and one made by another thread is found too."""
    before = spark.conf.get(SHUFFLE)
    spark.conf.set(SHUFFLE, "64")
    found: list[str | None] = []

    def use() -> None:
        with spark_session() as session:
            found.append(session.conf.get(SHUFFLE))

    try:
        use()
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    finally:
        spark.conf.set(SHUFFLE, before)
    assert found == ["64", "64"]
    assert spark.range(1).count() == 1


def test_every_place_of_a_setting_is_read(tmp_path: Path) -> None:
    """SPARK_CONF_DIR before SPARK_HOME, both spellings of options, a file of properties, the forms of a line."""
    home, own, more = tmp_path / "home", tmp_path / "own", tmp_path / "more.conf"
    (home / "conf").mkdir(parents=True)
    own.mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.a 1\n")
    (own / "spark-defaults.conf").write_text("#spark.no 1\n! spark.no 2\n\nspark.b=1\n spark.c:2\nspark.d\t3 4\n")
    more.write_text("spark.e 1\n")
    assert user_settings({}) == set()
    assert user_settings({"SPARK_HOME": str(home)}) == {"spark.a"}
    both = {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(own)}
    assert user_settings(both) == {"spark.b", "spark.c", "spark.d"}
    arguments = f"--conf spark.f=1 --conf=spark.g=2 --driver-memory 2g --properties-file {more} pyspark-shell"
    assert user_settings({"PYSPARK_SUBMIT_ARGS": arguments}) == {
        *("spark.e", "spark.f", "spark.g", "spark.driver.memory"),
    }
