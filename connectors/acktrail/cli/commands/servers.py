"""``acktrail broker``: a real Kafka broker on this machine, to try things on; ``acktrail connect``: the worker that
runs connectors, and what can be configured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli import arrow_without_pandas
from acktrail.cli.common_options import AsJson, command_group, echo_rows
from acktrail.config import cache_folder

if TYPE_CHECKING:
    from acktrail.embedded.kafka.embedded_broker import DetachedBroker


broker_commands = command_group(
    "A real Kafka broker on this machine, to try things on: one node, on loopback, fetched when first needed."
)

_DEFAULT_VERSION = "4.3.1"
Folder = Annotated[Path | None, typer.Option(help="Where the broker keeps its data. Default: in the user's cache.")]
connect = command_group("Run connectors, as a Kafka Connect worker does.")


@broker_commands.command()
def start(
    version: Annotated[str, typer.Option(help="Kafka release: 4.1.2, 4.2.1, 4.3.1 or 4.4.0.")] = _DEFAULT_VERSION,
    folder: Folder = None,
    port: Annotated[int, typer.Option(help="Port for clients; 0 takes a free one.", min=0, max=65535)] = 0,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C, then stop it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a broker and print its address when it is ready.

    It runs until `acktrail broker stop`. Where one runs already, its address is printed. Topics and groups are kept
    in the folder for the next start.
    """
    from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker, start_detached
    from acktrail.embedded.kafka.installation import known_release

    if foreground:
        with EmbeddedBroker(version, folder=folder, port=port) as running:
            typer.echo(running.bootstrap_servers)
            typer.echo("Ctrl-C stops it", err=True)
            try:
                running.wait()
            except KeyboardInterrupt:
                typer.echo("stopping", err=True)
        return
    own = folder or _brokers() / known_release(version)
    broker = start_detached(version, folder=own, port=port)
    typer.echo(json.dumps(broker.to_json()) if as_json else broker.bootstrap_servers)


@broker_commands.command()
def stop(
    folder: Folder = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the folder, data and all.")] = False,
) -> None:
    """Stop the broker of a folder; without --folder, every broker that was started without one."""
    from acktrail.embedded.kafka.embedded_broker import stop_detached

    running = _running(folder)
    for broker in running:
        stop_detached(broker)
        typer.echo(f"stopped Kafka {broker.version} at {broker.bootstrap_servers}", err=True)
        if delete:
            shutil.rmtree(broker.folder)
    if not running:
        typer.echo("no broker runs", err=True)


@broker_commands.command()
def status(folder: Folder = None, as_json: AsJson = False) -> None:
    """Say which brokers run, one a line: that of a folder, or all that were started without one. Exit code 1 when none
    runs."""
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
    from acktrail.embedded.kafka.embedded_broker import find_detached

    wanted = [folder.absolute()] if folder else sorted(_brokers().glob("*"))
    return [broker for broker in map(find_detached, wanted) if broker]


def _brokers() -> Path:
    return cache_folder() / "brokers"


@connect.command()
def standalone(
    worker: Annotated[Path, typer.Argument(help="The worker's configuration: a TOML file.")],
    connectors: Annotated[list[Path] | None, typer.Argument(help="Connectors: a JSON file each.")] = None,
) -> None:
    """Run connectors until Ctrl-C or SIGTERM; bounded ones until their end.

    A broker or storage that goes away is waited for. The REST interface has Kafka Connect's paths. A connector of a
    file takes the place of a stored one of its name.

    Example: acktrail connect standalone worker.toml state.json offsets.json
    """
    arrow_without_pandas.forgo_pandas()
    from acktrail.connect.runtime.standalone import run_standalone

    raise typer.Exit(run_standalone(worker, connectors or []))


@connect.command()
def plugins(*, as_json: AsJson = False) -> None:
    """List the sources, sinks and transforms that are installed."""
    from acktrail.connect.runtime.plugins import installed

    found = installed()
    if as_json:
        typer.echo(
            json.dumps([{"class": each.name, "type": each.kind.value, "version": each.version} for each in found])
        )
        return
    for each in found:
        typer.echo(f"{each.kind.value:15} {each.name:28} {each.version}")


@connect.command()
def reference(
    plugin: Annotated[str | None, typer.Argument(help="A source, sink or transform. Default: the common keys.")] = None,
) -> None:
    """Print the configuration keys of a plug-in as Markdown: name, type, default, valid values, meaning."""
    from acktrail.connect import config_def
    from acktrail.connect.runtime.connector_config import COMMON
    from acktrail.connect.runtime.plugins import definition_of

    typer.echo(config_def.reference(COMMON if plugin is None else definition_of(plugin)))
