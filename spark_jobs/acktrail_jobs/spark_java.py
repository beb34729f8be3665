"""The Java of a Spark session: its messages go to the log, and the classes that it loads are kept in a file.

Airflow logs every line that a child process writes to stderr as an error of the task: Spark's banner is none.

The file in the user's cache is class data sharing of the JDK, which halves the processor time of a session's start. The
second session on a Java, a PySpark and a class path writes it when it ends, which costs as much as two or three starts:
a container that starts one session has no use for it. Later sessions map it. Java checks it against its own version
and against the jars, and starts without it where they differ. So no file is ever needed: none is used that somebody
else could have written, none is made where Java cannot (a folder on the class path that holds files, such as
SPARK_CONF_DIR), and one session makes it where several start at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from threading import Thread
from typing import IO, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_END_S: Final = 120.0
_log: Final = logging.getLogger("acktrail.spark")
_BANNER: Final = (
    "WARNING: Using incubator modules",
    "Setting default log level to",
    "To adjust logging level use",
    "Using Spark's default log4j profile",
    "WARNING: package sun.security.action not in java.base",
)
_LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
}
_ON_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_NOT_IN_AN_OPTION: Final = frozenset('":\\')
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java writes warnings about an archive that it does not use to stdout."""


class ClassArchive:
    """The archive for `java` and `environment` in the folder `cache`, made by this session where there is none."""

    def __init__(self, cache: Path, java: Path, environment: Mapping[str, str]) -> None:
        self.options: tuple[str, ...] = ()
        """What Java is started with; nothing where it starts without an archive."""
        self._lock: IO[str] | None = None
        self._file = cache / "spark" / f"{_key(java, environment)}.jsa"
        self._made = self._file.with_suffix(f".{os.getpid()}.new")
        try:
            if not _NOT_IN_AN_OPTION & set(str(self._file)):
                self._choose(environment)
        except OSError:  # a folder of somebody else, or another session makes it
            self.forgo()

    @property
    def is_made(self) -> bool:
        """Whether this session's Java writes the archive when it ends."""
        return self._lock is not None

    def keep(self) -> None:
        """Let later sessions use what Java has written. Call it once Java has ended as it should."""
        with suppress(OSError):
            size = self._made.stat().st_size
            self._made.replace(self._file)
            if self._lock is not None:
                self._lock.truncate(0)
                self._lock.write(str(size))
        self.forgo()

    def forgo(self) -> None:
        """Make none: what Java writes is not used, and another session may make one."""
        self.options = ()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _choose(self, environment: Mapping[str, str]) -> None:
        folder, mark = self._file.parent, self._file.with_suffix(".lock")
        if self._file.exists():
            is_whole = str(self._file.stat().st_size) == mark.read_text()  # Java would map what is not there
            if is_whole and _is_own(self._file) and _is_own(folder):
                self.options = (f'"-XX:SharedArchiveFile={self._file}"', *_QUIET)
        elif not mark.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch()
        elif not any(_holds_files(Path(place)) for place in _class_path(environment)):
            self._lock = mark.open("r+")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob("*.new"):
                left.unlink()
            self.options = (f'"-XX:ArchiveClassesAtExit={self._made}"', *_QUIET)


def _key(java: Path, environment: Mapping[str, str]) -> str:
    """Another Java, PySpark or class path has another archive."""
    launcher = java.resolve()
    parts = (launcher, launcher.stat().st_mtime_ns, pyspark.__version__, *_class_path(environment))
    return f"{pyspark.__version__}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _class_path(environment: Mapping[str, str]) -> list[str]:
    """Spark's configuration first."""
    home = environment.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    return [f"{home}/conf", *(environment[name] for name in _ON_CLASS_PATH if environment.get(name))]


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _is_own(path: Path) -> bool:
    """Whether no other user can have written it: it is code that Java runs."""
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java of a session with `settings`, whose messages go to the logger ``acktrail.spark``. Nothing where
    this process has one already."""
    if SparkContext._gateway is not None:  # noqa: SLF001  # there is no public way to ask
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = launch_gateway(conf, popen_kwargs={"stderr": PIPE, "text": True, "errors": "replace"})
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # what a SparkContext does with its own
    Thread(target=_log_lines, args=(gateway.proc.stderr,), name="java-messages", daemon=True).start()


def end_java(*, is_clean: bool) -> bool:
    """End the Java of this process, so that another one can start. `is_clean`: let it do what it does at its end, for
    two minutes at most; whether it ended as it should."""
    gateway = SparkContext._gateway  # noqa: SLF001  # as above
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # a stopped context leaves them
    gateway.shutdown()
    if is_clean:
        gateway.proc.stdin.close()
        with suppress(TimeoutExpired):
            return gateway.proc.wait(_END_S) == 0
    gateway.proc.kill()
    return False


def wait_for_java() -> int:
    """Wait until the Java of this process ends; its exit code."""
    return int(SparkContext._gateway.proc.wait())  # noqa: SLF001  # as above


def level_of(line: str, before: int = logging.WARNING) -> int:
    """The level of a line: its own where Spark's logging wrote it (date, time, level), that of the line `before` where
    it belongs to a stack trace, debug for the banner of Java and Spark, else a warning."""
    if line.startswith(_BANNER):
        return logging.DEBUG
    words = line.split(maxsplit=3)
    if len(words) > 2 and words[2] in _LEVELS:
        return _LEVELS[words[2]]
    is_trace = line.startswith(("\t", " ", "Caused by:", "org.", "java."))
    return before if is_trace else logging.WARNING


def _log_lines(stderr: IO[str]) -> None:
    level = logging.WARNING
    for line in stderr:
        text = line.rstrip("\n")
        level = level_of(text, level)
        if text:
            _log.log(level, "%s", text)
