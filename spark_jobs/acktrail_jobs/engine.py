"""Where the work of a run is done, by Spark's executors or in this process, and its failures as acktrail's errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from acktrail.config import spark_master
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError

if TYPE_CHECKING:
    from acktrail_jobs.frames import JobSession

IN_PROCESS: Final = "in-process"
"""In place of a Spark master: this process does the work, on one core and without Spark's pages."""
_OF_SPARK: Final = (("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"))
_GIVEN_UP: Final = "stopped SparkContext"
_LATE: Final = "failed to connect back"
_TOO_LARGE: Final = "spark.driver.maxResultSize"
_CAUSE: Final = re.compile(r"(?:Caused by: |: )?([\w.$]*(?:Error|Exception|\.errors\.\w+)\b.*)")
_MISSING: Final = re.compile(
    r"No module named '(?P<module>(?:acktrail|pyarrow|numpy|pandas|deltalake)\w*)"
    r'|Cannot run program "(?P<python>[^"]+)'
)


@contextmanager
def jobs_on(master: str | None, run_id: str = "") -> Iterator[JobSession]:
    """The session of a run's jobs: the Spark session that runs, or a new one on `master` that begins with the first job
    and ends with the block; ``IN_PROCESS``: this process. Failures are `translated`.

    `master` None: ACKTRAIL_SPARK_MASTER, what ``spark-submit`` or SPARK_REMOTE says, else two local threads. The
    first job raises MissingDependency (no Java that runs Spark, or JAVA_HOME names a folder without one).
    """
    from acktrail_jobs.frames import JobSession, in_process

    chosen = master or spark_master()
    with translated(), ExitStack() as running:
        if chosen == IN_PROCESS:
            yield in_process()
        else:
            from acktrail_jobs.session import spark_session

            yield JobSession(lambda: running.enter_context(spark_session(chosen)), run_id)


@contextmanager
def translated() -> Iterator[None]:
    """Around a job: a failure of Spark or Arrow becomes one line that names the cause. Raises AcktrailError (the Spark
    job failed), RetryableError (a worker started too late), ConfigurationError (a table's files cannot be read, or
    Spark's executors do not have acktrail)."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise ConfigurationError(f"the tables cannot be read: {_last_line(error)}", hint="check the files") from error
    except Exception as error:
        loaded = ((sys.modules.get(module), name) for module, name in _OF_SPARK)  # this process may do the work itself
        if not isinstance(error, tuple(getattr(module, name) for module, name in loaded if module)):
            raise
        if missing := _MISSING.search(str(error)):
            what = f"import {missing['module']}" if missing["module"] else f"run {missing['python']}"
            raise ConfigurationError(
                f"Spark's executors cannot {what}",
                hint="install acktrail on every machine of the cluster, and let PYSPARK_PYTHON name that Python",
            ) from error
        if _TOO_LARGE in str(error):
            raise ConfigurationError(
                f"what the executors hand to the driver is larger than {_TOO_LARGE}",
                hint="raise it where Spark's settings are; nothing of this step was written to the tables",
            ) from error
        if _LATE in str(error):
            raise RetryableError(
                "Spark gave up waiting for a Python worker to start",
                hint="the machine is too busy (Spark waits ten seconds): run it again when it is less so",
            ) from error
        if _GIVEN_UP in str(error):
            raise ConfigurationError(
                "Spark ended before it did any work: no master took the application",
                hint="is there a Spark master of this version at the address? Spark's own messages on stderr say more",
            ) from error
        raise AcktrailError(
            f"the Spark job failed: {_last_line(error)}", hint="Spark's own messages on stderr say more"
        ) from error


def _last_line(error: Exception) -> str:
    """The line that names the cause: the end of an executor's traceback, else the innermost exception of the JVM."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [cause[1] for line in lines if (cause := _CAUSE.match(line))]
    return (causes or lines or [type(error).__name__])[-1]
