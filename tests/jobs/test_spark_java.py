"""Spark's Java: an archive of its classes is never in the way, its banner is no error."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acktrail.config import environment
from acktrail_jobs.session import ClassArchive, level_of

SCRIPT = Path(__file__).with_name("session_settings.py")
JAVA = Path(sys.executable)
"""Any file: what is asked here is asked before Java starts."""


def opened(cache: Path, java: Path = JAVA, **surroundings: str) -> ClassArchive:
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


def test_a_part_of_one_is_not_used(tmp_path: Path) -> None:
    """Java dies of reading behind the end of the file."""
    file = made(tmp_path)
    file.write_bytes(b"class")
    assert opened(tmp_path).options == ()


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
        done = subprocess.run(
            [sys.executable, SCRIPT, "spark.driver.defaultJavaOptions"],
            env=surroundings, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
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
    """The banner is for those who look for it; errors stay errors; what is not known is a warning."""
    assert level_of(line) == level


def test_a_stack_trace_has_the_level_of_its_first_line() -> None:
    """Lines of a trace belong to the error above them."""
    for line in (
        "\tat org.apache.spark.Task.run(Task.scala:1)",
        "Caused by: java.io.IOException: no",
        "java.lang.Error",
    ):
        assert level_of(line, logging.ERROR) == logging.ERROR
