"""Where a job's work is done: in this process where its input is small, else by Spark's Python workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from acktrail.config import driver_rows, environment, java_home
from acktrail.errors import MissingDependency
from acktrail.workers import InProcessWorkers, OpenWorkers, Workers

_LOCAL: Final = re.compile(r"local(\[.*\])?")
_ELSEWHERE: Final = frozenset({"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"})
"""Variables that say where Spark is: a Spark Connect server, or what ``spark-submit`` started."""


def workers_on(master: str | None) -> OpenWorkers:
    """Opens this process as the only worker where a job reads at most ACKTRAIL_DRIVER_ROWS rows and Spark would run on
    threads of this machine; else a Spark session: the one that runs, or a new one on `master` that ends with the block.

    `master` None: what ``spark-submit`` says, else two local threads. What it returns raises:

    Raises:
        ConfigurationError: ACKTRAIL_DRIVER_ROWS is no number.
        MissingDependency: no Java that runs Spark, or JAVA_HOME names a folder without one. A small job checks that
            too, so that it is found before the first large one.
    """
    return partial(_open, master)


@contextmanager
def _open(master: str | None, rows: int) -> Iterator[Workers]:
    if rows <= driver_rows() and _is_local(master):
        _check_java_home()
        yield InProcessWorkers()
        return
    from acktrail_jobs.session import spark_session
    from acktrail_jobs.spark_workers import SparkWorkers

    with spark_session(master) as session:
        yield SparkWorkers(session)


def _check_java_home() -> None:
    home = java_home()
    if home is not None and not (home / "bin" / "java").exists():
        raise MissingDependency(
            f"JAVA_HOME names {home}, where there is no Java that runs Spark", hint="correct JAVA_HOME, or unset it"
        )


def _is_local(master: str | None) -> bool:
    if _has_session():
        return False
    if master is None:
        return not _ELSEWHERE & environment().keys()
    return _LOCAL.fullmatch(master) is not None


def _has_session() -> bool:
    if "pyspark.sql" not in sys.modules:
        return False
    from acktrail_jobs.session import running_session

    return running_session() is not None
