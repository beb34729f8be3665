"""Where a job's work is done, by Spark's executors or in this process, and its failures as acktrail's errors;
``acktrail run spark``: a Spark Connect server that stays up, for runs that come often, and whether one answers."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.common_options import AsJson
from acktrail.cli.progress import interruptible
from acktrail.config import be_spark_of_this_machine, environment, spark_master
from acktrail.errors import AcktrailError, ConfigurationError

if TYPE_CHECKING:
    from acktrail.executors import Executors

IN_PROCESS: Final = "in-process"
"""In place of a Spark master: this process does the work, on one core and without Spark's pages."""
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark master, sc://host:port or in-process. Default: ACKTRAIL_SPARK_MASTER, else local[2]."
    ),
]
_OF_SPARK: Final = (("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"))
_GIVEN_UP: Final = "stopped SparkContext"
_CAUSE: Final = re.compile(r"(?:Caused by: |: )?([\w.$]*(?:Error|Exception|\.errors\.\w+)\b.*)")
_MISSING: Final = re.compile(
    r"No module named '(?P<module>(?:acktrail|pyarrow|numpy|pandas|deltalake)\w*)"
    r'|Cannot run program "(?P<python>[^"]+)'
)
app = typer.Typer(rich_markup_mode=None, add_completion=False, help="A Spark Connect server that stays up.")
_HOST: Final = "127.0.0.1"
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # the name of a variable
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": _HOST,
    "spark.ui.enabled": "true",
    "spark.ui.killEnabled": "false",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.connect.ui.retainedSessions": "20",
    "spark.sql.connect.ui.retainedStatements": "50",
    "spark.connect.session.manager.defaultSessionTimeout": "10m",
    "spark.connect.session.manager.closedSessionsTombstonesSize": "100",
    "spark.connect.execute.manager.abandonedTombstonesSize": "100",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.sql.artifact.isolation.enabled": "false",
}
"""What it keeps of runs that are over is bounded. With files of its own each session would have Python workers of its
own, whose parent stays until the server ends: ``start-connect-server.sh`` grows by 60 MB a run."""


@contextmanager
def executors_on(master: str | None, run_id: str = "") -> Iterator[Executors]:
    """Open the executors of a run: those of the Spark session that runs, or of a new one on `master` that begins with
    the first work and ends with the block; ``IN_PROCESS``: this process. Failures are `translated`.

    `master` None: ACKTRAIL_SPARK_MASTER, what ``spark-submit`` or SPARK_REMOTE says, else two local threads. The
    first work raises MissingDependency (no Java that runs Spark, or JAVA_HOME names a folder without one).
    """
    chosen = master or spark_master()
    with translated(), ExitStack() as running:
        if chosen == IN_PROCESS:
            from acktrail.executors import InProcess

            yield InProcess()
        else:
            from acktrail_jobs.session import spark_session
            from acktrail_jobs.spark_executors import SparkExecutors

            yield SparkExecutors(lambda: running.enter_context(spark_session(chosen)), run_id)


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
        loaded = ((sys.modules.get(module), name) for module, name in _OF_SPARK)  # this process may do the work itself
        if not isinstance(error, tuple(getattr(module, name) for module, name in loaded if module)):
            raise
        if missing := _MISSING.search(str(error)):
            what = f"import {missing['module']}" if missing["module"] else f"run {missing['python']}"
            raise ConfigurationError(
                f"Spark's executors cannot {what}",
                hint="install acktrail on every machine of the cluster, and let PYSPARK_PYTHON name that Python",
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


@app.command("serve")
def _serve(
    master: Annotated[str, typer.Option("--master", help="Where the server's work is done.")] = "local[2]",
    port: Annotated[int, typer.Option("--port", min=1, max=65_535)] = 15_002,
) -> None:
    """Run a Spark Connect server until SIGTERM or Ctrl-C. Its address is printed once it answers.

    It listens on 127.0.0.1. A client runs code as its user: it needs a token, in SPARK_CONNECT_AUTHENTICATE_TOKEN of
    its environment and of each client's. What it keeps of runs that are over is bounded. Spark's messages are on
    stderr.

    Example: acktrail run spark serve --port 15002
    """
    from acktrail_jobs.session import spark_session, wait_for_java

    if not environment().get(_TOKEN):
        raise ConfigurationError(f"{_TOKEN} is not set", hint=f'export {_TOKEN}="$(openssl rand -hex 32)"')
    _check_port(port)
    be_spark_of_this_machine(sys.executable)
    settings = {**_SERVER, "spark.connect.grpc.binding.port": str(port)}
    # Only the wait is interrupted: an end that is interrupted again would leave Java behind.
    with translated(), spark_session(master, **settings), suppress(KeyboardInterrupt), interruptible():
        typer.echo(f"sc://localhost:{port}")
        raise AcktrailError(f"Spark's Java ended with exit code {wait_for_java()}")


@app.command("check")
def _check(
    master: Annotated[
        str | None, typer.Argument(help="sc://host:port, or a Spark master. Default: SPARK_REMOTE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do a small piece of work on Spark, as a health check. It says which Spark did it.

    Example: acktrail run spark check sc://localhost:15002
    """
    from acktrail.text_tables import table
    from acktrail_jobs.session import SparkPlace, spark_session

    with translated(), spark_session(master) as session:
        session.range(1).toArrow()
        found = asdict(SparkPlace.of(session))
    rows = [(name, value) for name, value in found.items() if value is not None]
    typer.echo(json.dumps(found) if as_json else table(("", "spark"), rows))


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {_HOST}:{port}: {error.strerror}") from error
