"""Options that several commands share, and how a group of commands is made. With ``--profile`` their defaults come
from the profile, not from the variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

BootstrapServer = Annotated[
    str | None,
    typer.Option("--bootstrap-server", help="Brokers, host:port[,host:port]. Default: $ACKTRAIL_BOOTSTRAP_SERVERS."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        help="File with key=value lines for the Kafka client: security.protocol, sasl.*, ssl.*. "
        "Default: $ACKTRAIL_CLIENT_CONFIG.",
    ),
]
TablesRoot = Annotated[
    str | None,
    typer.Option("--tables", help="Root of the tables: a folder or s3://bucket/prefix. Default: $ACKTRAIL_TABLES."),
]
TablesOptions = Annotated[
    Path | None,
    typer.Option(
        "--tables-options", help="File with key=value lines for the object storage. Default: $ACKTRAIL_TABLES_OPTIONS."
    ),
]
TIME: Final = "2026-08-01T12:00:00Z, how long ago (1h), or epoch ms"
"""How a time is given (`acktrail.times.time_ms`), for the help of an option."""

AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]


def command_group(about: str) -> typer.Typer:
    """A group of commands; without a command it shows its help."""
    group = typer.Typer(help=about, rich_markup_mode=None, add_completion=False, no_args_is_help=True)
    group.callback()(lambda: None)  # a group also with one command
    return group
