"""``acktrail config files``: what runs acktrail on a machine, and what Prometheus and Grafana read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acktrail.errors import ConfigurationError


def deployment(
    out: Annotated[Path | None, typer.Option("--out", help="Copy the files below this folder.")] = None,
) -> None:
    """List units of systemd, configuration, alert rules and boards.

    --out copies them: services (units, and what they read), prometheus, grafana. A file that is there already stays as
    it is, and the copy fails before it writes anything.

    Example: acktrail config files --out acktrail-files
    """
    from acktrail.package_data import deployed_files

    found = deployed_files()
    if out is None:
        for name in sorted(found):
            typer.echo(name)
        return
    there = sorted(name for name in found if (out / name).exists())
    if there:
        message = f"{out / there[0]} is there already"
        raise ConfigurationError(message, hint="give a folder that has none of these files")
    try:
        for name, file in sorted(found.items()):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(file.read_bytes())
            typer.echo(out / name)
    except OSError as error:
        raise ConfigurationError(
            f"{out}: {error.strerror or error}", hint="give a folder that may be written"
        ) from error
