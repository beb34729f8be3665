"""Where a job's work is done, by Spark's executors or in this process, and its failures as acktrail's errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.config import spark_master
from acktrail.errors import AcktrailError, ConfigurationError

if TYPE_CHECKING:
    from acktrail.executors import Executors, OpenExecutors

IN_PROCESS: Final = "in-process"
"""In place of a Spark master: this process does the work, on one core and without Spark's pages."""
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark master, sc://host:port or in-process. Default: ACKTRAIL_SPARK_MASTER, else local[2]."
    ),
]
_MISSING: Final = re.compile(r"No module named '(acktrail\w*)")


def executors_on(master: str | None) -> OpenExecutors:
    """Opens Spark's executors: those of the session that runs, or of a new one on `master` that begins with the first
    work and ends with the block; ``IN_PROCESS``: this process.

    `master` None: ACKTRAIL_SPARK_MASTER, what ``spark-submit`` or SPARK_REMOTE says, else two local threads. The
    first work raises MissingDependency (no Java that runs Spark, or JAVA_HOME names a folder without one).
    """
    return partial(_open, master or spark_master())


@contextmanager
def _open(master: str | None, run_id: str) -> Iterator[Executors]:
    if master == IN_PROCESS:
        from acktrail.executors import InProcess

        yield InProcess()
        return
    from acktrail_jobs.session import spark_session
    from acktrail_jobs.spark_executors import SparkExecutors

    with translated(), ExitStack() as running:
        yield SparkExecutors(lambda: running.enter_context(spark_session(master)), run_id)


@contextmanager
def translated() -> Iterator[None]:
    """Around a job: a failure of Spark or Arrow becomes one line that names the cause. Raises AcktrailError (the Spark
    job failed), ConfigurationError (a table's files cannot be read, or Spark's executors do not have acktrail)."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise ConfigurationError(f"the tables cannot be read: {_last_line(error)}", hint="check the files") from error
    except Exception as error:
        errors = sys.modules.get("pyspark.errors")  # imports no PySpark: this process may do the work
        if errors is None or not isinstance(error, errors.PySparkException):
            raise
        if missing := _MISSING.search(str(error)):
            raise ConfigurationError(
                f"Spark's executors cannot import {missing[1]}",
                hint="install acktrail on every machine of the cluster, and let PYSPARK_PYTHON name that Python",
            ) from error
        raise AcktrailError(
            f"the Spark job failed: {_last_line(error)}", hint="Spark's own messages on stderr say more"
        ) from error


def _last_line(error: Exception) -> str:
    """The line that names the cause: the end of a executor's traceback, before the JVM's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) or ".errors." in line]
    return (causes or lines or [type(error).__name__])[-1]
