"""Spark's session: settings that the user makes stay, acktrail's own are defaults below them. Its Java: an archive of
its classes is never in the way, its banner is no error. A Spark Connect server of acktrail's answers those who know
the token, and stays as large as it is."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from drivers.own_process import finished, free_port
from extras.embedded.processes import eventually, lives
from jobs.world import twins
from pyspark.sql import SparkSession

from acktrail.config import environment
from acktrail_jobs.session import ClassArchive, SparkPlace, level_of, spark_session

SCRIPT = Path(__file__).with_name("session_settings.py")
SUBMIT = Path(sys.executable).with_name("spark-submit")
SHUFFLE, UI, ZONE = "spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.sql.session.timeZone"
JAVA, NAME, OWN = "spark.driver.extraJavaOptions", "spark.app.name", "spark.driver.defaultJavaOptions"


def settings(*command: str | Path, is_quiet: bool = False, **changes: str) -> dict[str, str]:
    names = (SHUFFLE, UI, ZONE, JAVA, NAME, OWN)
    done = finished(*command, SCRIPT, *names, env=environment(PYSPARK_PYTHON=sys.executable, **changes))
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
        f"# für mich\n{SHUFFLE}  64\n{JAVA}=-Dmine=1 -XX:+UseG1GC\n{NAME} nightly\n", "latin-1"
    )
    found = settings(sys.executable, is_quiet=True, SPARK_CONF_DIR=str(tmp_path))
    assert (found[SHUFFLE], found[UI], found[ZONE], found[NAME]) == ("64", "false", "UTC", "nightly")
    assert "-Dmine=1" in found[JAVA]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("--master local[1] ", ("", "", False)),
        pytest.param("", ("4", "false", True), marks=pytest.mark.full),
    ],
)
def test_only_a_master_of_the_user_takes_the_defaults_away(master: str, expected: tuple[str, str, bool]) -> None:
    """It is used, and may be a cluster: its UI and its compiled code are its own. With any other setting the master is
    the local one that acktrail chooses, and Java keeps its options."""
    found = settings(sys.executable, PYSPARK_SUBMIT_ARGS=f"{master}--conf spark.ui.port=0 pyspark-shell")
    assert (found[SHUFFLE], found[UI], "-XX:+UseSerialGC" in found[OWN]) == expected
    assert (found[ZONE], found[NAME]) == ("UTC", "acktrail")


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


ANY_JAVA = Path(sys.executable)
"""Any file: what is asked here is asked before Java starts."""


def opened(cache: Path, java: Path = ANY_JAVA, **surroundings: str) -> ClassArchive:
    return ClassArchive(cache, java, {"SPARK_HOME": str(cache / "spark-home"), **surroundings})


def made(cache: Path) -> Path:
    """An archive that a second session has made; the file."""
    opened(cache)
    maker = opened(cache)
    assert maker.is_made
    written = Path(maker.options[0].strip('"').partition("=")[2])
    written.write_bytes(b"classes")
    maker.keep()
    (file,) = (cache / "spark").glob("*.jsa")
    return file


def test_the_second_session_makes_it_and_later_ones_use_it(tmp_path: Path) -> None:
    """The first only leaves a trace; while one makes it another starts without; what a maker leaves behind goes."""
    assert opened(tmp_path).options == ()
    (tmp_path / "spark" / "left.new").touch()
    maker = opened(tmp_path)
    assert "ArchiveClassesAtExit" in maker.options[0]
    assert not list((tmp_path / "spark").glob("*.new"))
    assert opened(tmp_path).options == ()
    maker.forgo()
    assert maker.options == ()
    file = made(tmp_path)
    assert opened(tmp_path).options[0] == f'"-XX:SharedArchiveFile={file}"'
    assert not opened(tmp_path).is_made


def test_a_java_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    """The next session tries again."""
    opened(tmp_path)
    opened(tmp_path).keep()
    assert opened(tmp_path).is_made


def test_a_file_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    """It is code that Java runs: neither the file nor its folder may be anybody else's to change."""
    file = made(tmp_path)
    for path in (file, file.parent):
        before = path.stat().st_mode
        path.chmod(before | 0o020)
        assert opened(tmp_path).options == ()
        path.chmod(before)
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
        assert opened(tmp_path).options == ()
        os.chown(file, 0, -1)
    assert opened(tmp_path).options


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_none_is_made_where_a_folder_on_the_class_path_holds_files(name: str, tmp_path: Path) -> None:
    """Java would not start; an empty folder does no harm."""
    (tmp_path / "conf").mkdir()
    surroundings = {name: str(tmp_path / "conf")}
    opened(tmp_path, **surroundings)
    opened(tmp_path, **surroundings).forgo()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert opened(tmp_path, **surroundings).options == ()


def test_where_it_cannot_be_there_is_none(tmp_path: Path) -> None:
    """A cache that cannot be a folder, a path that Java's option cannot hold, a Java that is not there."""
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "with:colon"):
        opened(cache)
        assert opened(cache).options == ()


def test_another_java_and_another_spark_have_their_own(tmp_path: Path) -> None:
    """Also after an upgrade in place."""
    made(tmp_path)
    java = tmp_path / "java"
    java.touch()
    assert opened(tmp_path, java).options == ()
    assert opened(tmp_path, java).is_made
    os.utime(java, ns=(1, 1))
    assert not opened(tmp_path, java).is_made
    assert opened(tmp_path, SPARK_HOME=str(tmp_path / "other")).options == ()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
def test_sessions_make_it_use_it_and_survive_a_broken_one(tmp_path: Path) -> None:
    """With real Javas: nothing, made, used; then the file holds no archive, and a part of one."""

    def java_options() -> str:
        surroundings = environment(ACKTRAIL_CACHE=str(tmp_path))
        done = finished(sys.executable, SCRIPT, "spark.driver.defaultJavaOptions", env=surroundings, timeout=500)
        assert (done.returncode, done.stderr) == (0, "")
        return str(json.loads(done.stdout)["spark.driver.defaultJavaOptions"])

    assert ".jsa" not in java_options()
    assert "ArchiveClassesAtExit" in java_options()
    (file,) = (tmp_path / "spark").glob("*.jsa")
    assert file.stat().st_size > 20_000_000
    assert str(file) in java_options()
    size = file.stat().st_size
    file.unlink()
    file.write_bytes(b"\0" * size)
    assert str(file) in java_options()
    file.write_bytes(b"\0" * (size - 1))
    assert ".jsa" not in java_options()


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("WARNING: Using incubator modules: jdk.incubator.vector", logging.DEBUG),
        ('Setting default log level to "WARN".', logging.DEBUG),
        ("26/11/23 09:17:01 ERROR TaskSetManager: Task 0 in stage 0.0 failed 1 times", logging.ERROR),
        ("26/11/23 09:17:01 WARN Utils: Service 'sparkDriver' could not bind", logging.WARNING),
        ("ERROR is not at the place of a level", logging.WARNING),
        ("Error: A JNI error has occurred", logging.WARNING),
    ],
)
def test_a_line_has_its_own_level(line: str, level: int) -> None:
    """The banner is for those who look for it; errors stay errors; what is not known is a warning. Lines of a stack
    trace belong to the error above them."""
    assert level_of(line) == level
    for trace in (
        "\tat org.apache.spark.Task.run(Task.scala:1)",
        "Caused by: java.io.IOException: no",
        "java.lang.Error",
    ):
        assert level_of(trace, level) == level


ACKTRAIL = Path(sys.executable).with_name("acktrail")
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
KNOWN = "known to the tests, long enough"


def acktrail(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in environment().items() if name != TOKEN}
    return finished(ACKTRAIL, *words, env={**known, **changes})


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[str]

    def processes(self) -> list[psutil.Process]:
        """The server, its Java and its Python workers."""
        server = psutil.Process(self.process.pid)
        return [server, *server.children(recursive=True)]

    def memory_mb(self) -> float:
        """Of all of them; pages that several share count once."""
        total = 0
        for process in self.processes():
            with suppress(psutil.Error):  # a worker that has ended meanwhile
                total += process.memory_full_info().pss
        return total / 2**20


@contextmanager
def served(token: str = KNOWN) -> Iterator[Served]:
    command = [ACKTRAIL, "run", "spark", "serve", "--port", str(free_port())]
    with subprocess.Popen(
        command, env=environment(**{TOKEN: token}), stdout=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield Served(process.stdout.readline().strip(), process)
        finally:
            process.terminate()


def test_without_a_token_there_is_no_server() -> None:
    """Every user of the machine could run code as the one who started it."""
    done = acktrail("run", "spark", "serve", "--port", str(free_port()))
    assert done.returncode == 3
    assert TOKEN in done.stderr


def test_a_port_that_is_taken_is_said_before_spark_starts() -> None:
    """Its owner's answers are not taken for the server's."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = acktrail("run", "spark", "serve", "--port", str(taken.getsockname()[1]), **{TOKEN: KNOWN})
    assert done.returncode == 3
    assert "Address already in use" in done.stderr


def test_open_address_without_tls_is_refused() -> None:
    """The token would travel in plain text. The message names the option for a proxy that has the TLS."""
    done = acktrail("run", "spark", "serve", "--host", "0.0.0.0", "--port", str(free_port()), **{TOKEN: KNOWN})
    assert done.returncode == 3
    assert "without TLS" in done.stderr
    assert "--behind-tls-proxy" in done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_thirty_runs_leave_a_server_as_large_as_it_was(tmp_path: Path) -> None:
    """It answers with the token alone, gives the same tables as this machine's threads, has one parent of Python
    workers for all sessions, and ends with SIGTERM, its Java and its workers with it."""
    world, here = twins(tmp_path)
    assert acktrail("run", "reconcile", "--master", "in-process", "--tables", here.config.uri).returncode == 0
    with served() as server:
        refused = acktrail("run", "spark", "check", server.url, **{TOKEN: "guessed, and long enough"})
        assert refused.returncode != 0
        assert KNOWN not in refused.stderr
        place = json.loads(acktrail("run", "spark", "check", server.url, "--json", **{TOKEN: KNOWN}).stdout)
        assert (place["master"], place["application_name"]) == ("local[2]", "acktrail")
        sizes = []
        for number in range(30):
            world.observe(f"again{number}")
            words = ("--master", server.url, "--tables", world.config.uri)
            done = acktrail("run", "reconcile", *words, **{TOKEN: KNOWN})
            assert done.returncode == 0, done.stderr
            sizes.append(server.memory_mb())
        assert sizes[-1] < sizes[9] * 1.1
        processes = [process.pid for process in server.processes()]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) in (0, 130)
    assert eventually(lambda: not any(map(lives, processes)), within_s=60)
    names = ("group_id", "partition", "verdict", "durable_lag")
    ours, theirs = (
        sorted(tuple(row[name] for name in names) for row in each.rows("reconciliations", run_id))
        for each, run_id in ((here, "r0"), (world, "again29"))
    )
    assert ours == theirs
