"""Where a job's work is done, in this process or by Spark's Python workers, and its failures as acktrail's errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from acktrail.config import driver_rows, environment, java_home
from acktrail.errors import AcktrailError, ConfigurationError, MissingDependency
from acktrail.workers import InProcessWorkers, OpenWorkers, Workers

_LOCAL: Final = re.compile(r"local(\[.*\])?")
_ELSEWHERE: Final = frozenset({"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"})
"""Variables that say where Spark is: a Spark Connect server, or what ``spark-submit`` started."""
_MISSING: Final = re.compile(r"No module named '(acktrail\w*)")


def workers_on(master: str | None) -> OpenWorkers:
    """Opens this process as the only worker where a job reads at most ACKTRAIL_DRIVER_ROWS rows and Spark would run on
    threads of this machine; else a Spark session: the one that runs, or a new one on `master` that ends with the block.

    `master` None: what ``spark-submit`` says, else two local threads. What it returns raises ConfigurationError
    (ACKTRAIL_DRIVER_ROWS is no number), MissingDependency (no Java that runs Spark, or JAVA_HOME names a folder without
    one: a small job checks that too, so that it is found before the first large one).
    """
    return partial(_open, master)


@contextmanager
def _open(master: str | None, rows: int) -> Iterator[Workers]:
    if rows <= driver_rows() and not _has_session() and _is_local(master):
        home = java_home()
        if home is not None and not (home / "bin" / "java").exists():
            raise MissingDependency(
                f"JAVA_HOME names {home}, where there is no Java that runs Spark", hint="correct JAVA_HOME, or unset it"
            )
        yield InProcessWorkers()
        return
    from acktrail_jobs.session import spark_session
    from acktrail_jobs.spark_workers import SparkWorkers

    with spark_session(master) as session:
        yield SparkWorkers(session)


def _is_local(master: str | None) -> bool:
    if master is None:
        return not _ELSEWHERE & environment().keys()
    return _LOCAL.fullmatch(master) is not None


def _has_session() -> bool:
    if "pyspark.sql" not in sys.modules:
        return False
    from acktrail_jobs.session import running_session

    return running_session() is not None


@contextmanager
def translated() -> Iterator[None]:
    """Around a job: a failure of Spark or Arrow becomes one line that names the cause. Raises AcktrailError (the Spark
    job failed), ConfigurationError (a table's files cannot be read, or Spark's workers do not have acktrail)."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise ConfigurationError(f"the tables cannot be read: {_last_line(error)}", hint="check the files") from error
    except Exception as error:
        errors = sys.modules.get("pyspark.errors")  # imports no PySpark: small jobs run without it
        if errors is None or not isinstance(error, errors.PySparkException):
            raise
        if missing := _MISSING.search(str(error)):
            raise ConfigurationError(
                f"Spark's Python workers cannot import {missing[1]}",
                hint="install acktrail on every machine of the cluster, and let PYSPARK_PYTHON name that Python",
            ) from error
        raise AcktrailError(
            f"the Spark job failed: {_last_line(error)}", hint="Spark's own messages on stderr say more"
        ) from error


def _last_line(error: Exception) -> str:
    """The line that names the cause: the end of a worker's traceback, before the JVM's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) or ".errors." in line]
    return (causes or lines or [type(error).__name__])[-1]
