"""``acktrail tables maintain``: upkeep of the tables."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.common_options import OfTables
from acktrail.errors import InputError
from acktrail.text_tables import table
from acktrail.times import duration_ms, instant_text

if TYPE_CHECKING:
    from acktrail.tables.upkeep.maintenance import MaintenanceReport, TableUpkeep

_SHORTEST_VACUUM: Final = 86_400_000
_HEADERS: Final = (
    *("TABLE", "ROWS", "FILES", "SIZE", "LOG"),
    *("COMPACTED", "MERGED", "REMOVED", "FILES AFTER", "ROWS DROPPED", "OF DAYS"),
)


def maintain(
    *,
    at: OfTables,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do the maintenance. Without this option nothing is changed.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", help="Drop state records, history and observations older than this: 365d. Default: keep all."
        ),
    ] = None,
    keep_size: Annotated[
        str | None,
        typer.Option("--keep-size", help="Drop the oldest days of these tables while they are larger than this: 50GB."),
    ] = None,
    vacuum_after: Annotated[
        str,
        typer.Option("--vacuum-after", help="Remove files that the tables have not needed for this long; at least 1d."),
    ] = "7d",
) -> None:
    """Show which maintenance the tables need; --execute does it.

    Maintenance combines small files into larger ones, merges the ranges of an export, removes old commits and files
    that no table needs, and drops data that is older or larger than --keep and --keep-size allow. Exports,
    reconciliations and queries may run at the same time. If it is interrupted, run it again. Once a day is enough.

    Example: acktrail tables maintain --tables /data/acktrail --keep 365d --execute
    """
    config = at.needed
    from acktrail.tables.upkeep import maintenance

    policy = maintenance.MaintenancePolicy(
        keep_ms=None if keep is None else duration_ms("--keep", keep),
        keep_bytes=None if keep_size is None else _size(keep_size),
        vacuum_after_ms=_vacuum_after_ms(vacuum_after),
    )
    report = maintenance.maintain(config, policy) if execute else maintenance.preview(config, policy)
    typer.echo(json.dumps(asdict(report)) if at.as_json else _report_text(report))
    if not execute and not at.as_json:
        typer.echo("nothing was changed; to do it: --execute", err=True)


def _vacuum_after_ms(text: str) -> int:
    found = duration_ms("--vacuum-after", text)
    if found < _SHORTEST_VACUUM:
        raise InputError(
            f"--vacuum-after {text!r} is too short", hint="give at least 1d: running jobs may still read these files"
        )
    return found


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+) ?([MGT]B)", text)
    if found is None:
        raise InputError(f"--keep-size {text!r} is not a size", hint="give a number and MB, GB or TB: 50GB")
    return int(found[1]) * {"MB": 10**6, "GB": 10**9, "TB": 10**12}[found[2]]


def _report_text(report: MaintenanceReport) -> str:
    if not report.tables:
        return "there are no tables"
    text = table(_HEADERS, map(_row, report.tables))
    if report.dropped_before_ms is not None:
        text += f"\nkept is what is not older than {instant_text(report.dropped_before_ms)}"
    return "\n".join((text, *report.notes))


def _row(own: TableUpkeep) -> tuple[object, ...]:
    """What there is, then what is done; of rows that are dropped the first day and the last one."""
    days = list(own.days_dropped)
    return (
        *(own.table, own.rows, own.files, _bytes(own.bytes), _bytes(own.log_bytes)),
        *(own.small_files, own.rows_merged, own.unneeded_files, own.files_after),
        *(own.rows_dropped, " to ".join(dict.fromkeys((*days[:1], *days[-1:])))),
    )


def _bytes(number: int) -> str:
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(number) >= least:
            return f"{number / least:,.1f} {unit}"
    return f"{number:,} B"
