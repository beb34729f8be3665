"""``acktrail run spark``: a Spark Connect server that stays up, for runs that come often, and whether one answers."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Final

import typer

from acktrail.cli.common_options import AsJson
from acktrail.cli.progress import interruptible
from acktrail.config import be_spark_of_this_machine, environment
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.serving.addresses import is_loopback
from acktrail.serving.tokens import checked_token
from acktrail_jobs.engine import translated

app = typer.Typer(rich_markup_mode=None, add_completion=False, help="A Spark Connect server that stays up.")
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # the name of a variable
_ALL_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared only
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
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


@app.command("serve")
def _serve(
    master: Annotated[
        str, typer.Option("--master", help="Spark master on which the server runs its jobs.")
    ] = "local[2]",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Others than this machine's own need TLS before it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65_535)] = 15_002,
    behind_tls_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-tls-proxy",
            help="Listen without TLS on an address that other machines can reach: a proxy in front of the server "
            "provides TLS.",
        ),
    ] = False,
) -> None:
    """Run a Spark Connect server until SIGTERM or Ctrl-C. Its address is printed when it is ready.

    The server has no TLS of its own. A client can run code with the rights of the server's user, so the server requires
    a token: set the same SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment of the server and of each client. The
    server keeps a limited amount of data about finished runs. Spark's messages go to stderr.

    Example: acktrail run spark serve --port 15002
    """
    from acktrail_jobs.session import spark_session, wait_for_java

    token = environment().get(_TOKEN)
    if not token:
        raise ConfigurationError(f"{_TOKEN} is not set", hint=f'export {_TOKEN}="$(openssl rand -hex 32)"')
    checked_token(token, _TOKEN)
    _check_address(host, port, has_tls=behind_tls_proxy)
    be_spark_of_this_machine(sys.executable)
    binding = {"spark.connect.grpc.binding.address": host, "spark.connect.grpc.binding.port": str(port)}
    # Only the wait is interrupted: an end that is interrupted again would leave Java behind.
    with translated(), spark_session(master, **_SERVER, **binding), suppress(KeyboardInterrupt), interruptible():
        name = "localhost" if is_loopback(host) or host in _ALL_ADDRESSES else host
        typer.echo(f"sc://{name}:{port}")
        raise AcktrailError(f"Spark's Java ended with exit code {wait_for_java()}")


@app.command("check")
def _check(
    master: Annotated[
        str | None, typer.Argument(help="sc://host:port, or a Spark master. Default: SPARK_REMOTE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a small job on Spark, as a health check. It prints which Spark ran the job.

    Example: acktrail run spark check sc://localhost:15002
    """
    from acktrail.text_tables import table
    from acktrail_jobs.session import SparkPlace, spark_session

    with translated(), spark_session(master) as session:
        session.range(1).toArrow()
        found = asdict(SparkPlace.of(session))
    rows = [(name, value) for name, value in found.items() if value is not None]
    typer.echo(json.dumps(found) if as_json else table(("", "spark"), rows))


def _check_address(host: str, port: int, *, has_tls: bool) -> None:
    if not (is_loopback(host) or has_tls):
        raise ConfigurationError(
            f"--host {host} can be reached from elsewhere, without TLS",
            hint="give --behind-tls-proxy where a proxy has the TLS, or listen on 127.0.0.1",
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from error
