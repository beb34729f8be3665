"""The option that every command of the jobs has."""

from __future__ import annotations

from typing import Annotated, Final

import typer

IN_PROCESS: Final = "in-process"
"""In place of a Spark master: this process does the work, on one core and without Spark's pages."""
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark master, sc://host:port or in-process. Default: ACKTRAIL_SPARK_MASTER, else local[2]."
    ),
]
