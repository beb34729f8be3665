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
from acktrail_jobs.session import SparkPlace, spark_session

SCRIPT = Path(__file__).with_name("session_settings.py")
SUBMIT = Path(sys.executable).with_name("spark-submit")
SHUFFLE, UI, ZONE = "spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.sql.session.timeZone"
JAVA, NAME = "spark.driver.extraJavaOptions", "spark.app.name"


def settings(*command: str | Path, is_quiet: bool = False, **changes: str) -> dict[str, str]:
    surroundings = environment(PYSPARK_PYTHON=sys.executable, **changes)
    names = (SHUFFLE, UI, ZONE, JAVA, NAME)
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
    mine = ("--conf", f"{SHUFFLE}=64", "--conf", "spark.ui.port=0", "--name", "nightly")
    found = settings(SUBMIT, *mine, SPARK_CONF_DIR=str(tmp_path))
    assert (found[SHUFFLE], found[UI], found[ZONE], found[NAME]) == ("64", "true", "UTC", "nightly")
    assert settings(SUBMIT, "--master", "local[1]")[NAME] == "acktrail"


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.slow
def test_settings_of_the_defaults_file_stay(tmp_path: Path) -> None:
    """The same where acktrail starts Spark itself, also for options of Java that do not go with acktrail's. Its banner
    is nowhere."""
    (tmp_path / "spark-defaults.conf").write_text(
        f"# mine\n{SHUFFLE}  64\n{JAVA}=-Dmine=1 -XX:+UseG1GC\n{NAME} nightly\n"
    )
    found = settings(sys.executable, is_quiet=True, SPARK_CONF_DIR=str(tmp_path))
    assert (found[SHUFFLE], found[UI], found[ZONE], found[NAME]) == ("64", "false", "UTC", "nightly")
    assert "-Dmine=1" in found[JAVA]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
def test_nothing_is_turned_off_where_the_user_names_the_master() -> None:
    """A master among the user's settings is used, and may be a cluster: its UI and its compiled code are its own."""
    submit = "--master local[1] --conf spark.ui.port=0 pyspark-shell"
    found = settings(sys.executable, PYSPARK_SUBMIT_ARGS=submit)
    assert (found[SHUFFLE], found[UI], found[ZONE], found[NAME]) == ("", "", "UTC", "acktrail")


@pytest.mark.spark
def test_a_session_says_where_its_work_is_done(spark: SparkSession) -> None:
    """What Spark itself says of the application."""
    place = SparkPlace.of(spark)
    assert (place.version, place.master) == (spark.version, spark.sparkContext.master)
    assert place.application_id == spark.sparkContext.applicationId
    assert (place.application_name, place.ui) == (spark.sparkContext.appName, spark.sparkContext.uiWebUrl)


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
