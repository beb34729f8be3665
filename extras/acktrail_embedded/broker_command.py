"""``acktrail broker``: a real Kafka broker on this machine, to try things on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import AsJson, command_group, echo_rows
from acktrail.cli.progress import interruptible
from acktrail.config import cache_folder

if TYPE_CHECKING:
    from acktrail_embedded.kafka.embedded_broker import DetachedBroker


app = command_group(
    "Run a real Kafka broker on this machine, for tests. It is a single node on loopback. The first start downloads "
    "Kafka."
)

_DEFAULT_VERSION = "4.3.1"
Folder = Annotated[Path | None, typer.Option(help="Where the broker keeps its data. Default: in the user's cache.")]


@app.command()
def start(
    version: Annotated[str, typer.Option(help="Kafka release: 4.1.2, 4.2.1, 4.3.1 or 4.4.0.")] = _DEFAULT_VERSION,
    folder: Folder = None,
    port: Annotated[int, typer.Option(help="Port for clients. 0 means any free port.", min=0, max=65535)] = 0,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until Ctrl-C or SIGTERM, then stop the broker.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a broker and print its address when it is ready.

    The broker runs until `acktrail broker stop`. If it runs already, its address is printed. The folder keeps topics
    and groups for the next start.
    """
    from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker, start_detached
    from acktrail_embedded.kafka.installation import known_release

    if foreground:
        with EmbeddedBroker(version, folder=folder, port=port) as running:
            typer.echo(running.bootstrap_servers)
            typer.echo("Ctrl-C stops it", err=True)
            try:
                with interruptible():
                    running.wait()
            except KeyboardInterrupt:
                typer.echo("stopping", err=True)
        return
    own = folder or _brokers() / known_release(version)
    broker = start_detached(version, folder=own, port=port)
    typer.echo(json.dumps(broker.to_json()) if as_json else broker.bootstrap_servers)


@app.command()
def stop(
    folder: Folder = None,
    delete: Annotated[bool, typer.Option("--delete", help="Also delete the folder with all its data.")] = False,
) -> None:
    """Stop the broker of a folder. Without --folder it stops every broker that was started without one."""
    from acktrail_embedded.kafka.embedded_broker import stop_detached

    running = _running(folder)
    for broker in running:
        stop_detached(broker)
        typer.echo(f"stopped Kafka {broker.version} at {broker.bootstrap_servers}", err=True)
        if delete:
            shutil.rmtree(broker.folder)
    if not running:
        typer.echo("no broker runs", err=True)


@app.command()
def status(folder: Folder = None, as_json: AsJson = False) -> None:
    """List running brokers, one a line. With --folder only the broker of that folder is listed; without it, all that
    were started without --folder. Exit code 1: no broker runs."""
    running = _running(folder)
    if as_json:
        echo_rows(broker.to_json() for broker in running)
    for broker in () if as_json else running:
        typer.echo(f"{broker.bootstrap_servers}  Kafka {broker.version}  pid {broker.pid}  {broker.folder}")
    if not running:
        typer.echo("no broker runs", err=True)
        raise typer.Exit(1)


def _running(folder: Path | None) -> Sequence[DetachedBroker]:
    """The broker of a folder; without one those of the cache."""
    from acktrail_embedded.kafka.embedded_broker import find_detached

    wanted = [folder.absolute()] if folder else sorted(_brokers().glob("*"))
    return [broker for broker in map(find_detached, wanted) if broker]


def _brokers() -> Path:
    return cache_folder() / "brokers"
