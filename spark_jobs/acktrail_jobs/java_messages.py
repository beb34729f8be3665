"""What Spark's Java writes to stderr, as messages of the log: its banner is no error.

Airflow logs every line that a child process writes to stderr as an error of the task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from subprocess import PIPE, TimeoutExpired
from threading import Thread
from typing import IO, Final

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
