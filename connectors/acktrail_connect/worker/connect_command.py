"""``acktrail connect``: the worker that runs connectors, and what can be configured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acktrail.cli.common_options import AsJson, command_group, echo_rows
from acktrail.format.columns import arrow_without_pandas

app = command_group("Run connectors, as a Kafka Connect worker does.")


@app.command()
def standalone(
    worker: Annotated[Path, typer.Argument(help="The worker's configuration: a TOML file.")],
    connectors: Annotated[list[Path] | None, typer.Argument(help="JSON files, one for each connector.")] = None,
) -> None:
    """Run connectors until Ctrl-C, SIGTERM, or their end.

    Only bounded connectors end without Ctrl-C or SIGTERM. If a broker or a storage does not answer, the worker waits
    for it. The REST interface has the paths of Kafka Connect. A connector from a file replaces a stored connector of
    the same name.

    Example: acktrail connect standalone worker.toml state.json offsets.json
    """
    arrow_without_pandas.forgo_pandas()
    from acktrail_connect.worker.standalone import run_standalone

    raise typer.Exit(run_standalone(worker, connectors or []))


@app.command()
def health(
    worker: Annotated[Path, typer.Argument(help="The configuration that the worker was started with: a TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Check the health of a running worker on this machine. The command prints the states of connectors and their
    tasks. It is made for health checks of containers.

    Exit code 4: the worker does not answer, or a connector failed. A connector has not failed while it is paused, on
    standby, or waiting for a broker or a storage.

    Example: acktrail connect health worker.toml
    """
    from acktrail.text_tables import printable
    from acktrail_connect.worker.worker_health import worker_states

    found = worker_states(worker)
    if as_json:
        echo_rows({"connector": name, "states": states} for name, states in found.items())
        return
    lines = [f"{printable(name)}: {', '.join(states)}" for name, states in found.items()]
    typer.echo("\n".join(lines) or "no connectors")


@app.command()
def plugins(*, as_json: AsJson = False) -> None:
    """List the sources, sinks and transforms that are installed."""
    from acktrail_connect.worker.plugins import installed

    found = installed()
    if as_json:
        echo_rows({"class": each.name, "type": each.kind.value, "version": each.version} for each in found)
        return
    for each in found:
        typer.echo(f"{each.kind.value:15} {each.name:28} {each.version}")


@app.command()
def reference(
    plugin: Annotated[str | None, typer.Argument(help="A source, sink or transform. Default: the common keys.")] = None,
) -> None:
    """Print the configuration keys of a plug-in as Markdown. Each key has its type, default, valid values and
    meaning."""
    from acktrail_connect import config_def
    from acktrail_connect.worker.connector_config import COMMON
    from acktrail_connect.worker.plugins import definition_of

    typer.echo(config_def.reference(COMMON if plugin is None else definition_of(plugin)))
