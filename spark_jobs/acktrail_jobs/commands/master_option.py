"""The option of a command that says which Spark does the work."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark master, sc://host:port or in-process. Default: $ACKTRAIL_SPARK_MASTER, or local[2]."
    ),
]
