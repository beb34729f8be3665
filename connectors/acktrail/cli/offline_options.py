"""Options of the commands that read files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DialectName", "Files"]

Files = Annotated[list[Path], typer.Argument(help="Record dumps: .jsonl, .jsonl.gz, .jsonl.zst.")]
DialectName = Annotated[
    str,
    typer.Option(
        "--dialect",
        help="Byte form of the records: 4.0, 4.1, 4.2 (also 4.3, 4.4), or the drafts i, ii, iii, iv, iv-json. "
        "auto: the shipped one that a sample of each file agrees on.",
    ),
]
