"""Options of the commands that read files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.plain_tables import printable

if TYPE_CHECKING:
    from acktrail.offline.read.read_report import ReadReport, SegmentDamage
    from acktrail.wire.dialects.released import Dialect


Files = Annotated[
    list[Path],
    typer.Argument(
        help="Record dumps (.jsonl), tables of records (.parquet, .arrow, .feather) or Kafka's log segments (.log), "
        "each also with .gz or .zst appended."
    ),
]
DialectName = Annotated[
    str,
    typer.Option(
        "--dialect",
        help="Byte layout of the records: 4.0, 4.1, 4.2 (also 4.3, 4.4), or the drafts i, ii, iii, iv, iv-json. "
        "auto: the released one that a sample of each file agrees on.",
    ),
]
StatePartition = Annotated[
    int | None,
    typer.Option(
        "--state-partition",
        min=0,
        max=2**31 - 1,
        help="State partition of log segments whose folder has no TOPIC-PARTITION name.",
    ),
]


def chosen_dialect(name: str, files: list[Path], reading: ReadReport) -> Dialect[Any]:
    """The dialect called `name`, or the one that the files agree on; sets `reading` to read its kind of records."""
    from acktrail.offline.read.copied_files import choose_dialect, sample_of

    dialect = choose_dialect(name, lambda: sample_of(files, reading))
    reading.control = dialect.in_control_batches
    return dialect


def report_damage(damage: SegmentDamage) -> None:
    """Report a damaged piece of a segment in one line on stderr."""
    known = damage.first_offset is not None
    offsets = f"offsets {damage.first_offset} to {damage.last_offset}" if known else "offsets not known"
    typer.echo(
        f"{damage.status.value.replace('_', ' ')}: {printable(damage.file)}, byte {damage.position}, {offsets}: "
        f"{printable(damage.reason)}",
        err=True,
    )


def report_left_out(reading: ReadReport) -> None:
    """Report skipped records (control, aborted) and segments without a state partition, on stderr."""
    if reading.control_records or reading.aborted_records:
        typer.echo(
            f"{reading.control_records:,} control records and {reading.aborted_records:,} records of aborted "
            "transactions left out",
            err=True,
        )
    for file in reading.nameless:
        typer.echo(f"{printable(file)}: state partition not known, shown as -1: name it by --state-partition", err=True)
