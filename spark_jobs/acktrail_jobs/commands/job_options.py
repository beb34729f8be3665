"""The option that every command of the jobs has."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master, or sc://host:port. Default: what spark-submit says, else local[2]."),
]
