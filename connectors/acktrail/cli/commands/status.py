"""``acktrail status``: is the trail fresh and complete, and which group is in trouble, on one screen."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text import health_text
from acktrail.cli.text.json_text import json_line
from acktrail.errors import QualityGateFailed
from acktrail.times import duration_ms

if TYPE_CHECKING:
    from acktrail.view.cluster_health import ClusterHealth

ACT_ON_IT: Final = QualityGateFailed.exit_code
_REDRAW: Final = "\033[H\033[2J"
_LONGEST_MS: Final = 86_400_000
_LINES: Final = 60
"""Of an answer that no terminal shows."""


def status(
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only groups that match, shell style. May be repeated.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Until Ctrl-C: drawn again on a terminal, a line each time elsewhere.")
    ] = False,
    every: Annotated[str, typer.Option("--every", help="With --watch, how often to look: 30s, 1m.")] = "10s",
    stale_after: Annotated[
        str, typer.Option("--stale-after", help="An export or statuses older than this are something to act on.")
    ] = "2h",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the trail is fresh and complete, and which groups are in trouble, the worst first.

    On top export, gaps, findings; then groups, then the share partitions that are not ok or idle, each with since when
    and why, up to the height of the screen. Reads small tables alone, as of the newest reconciliation; no broker.
    The exit code is 0 when there is nothing to act on, and 6 when there is: a status that asks for action, an open
    critical finding, something older than --stale-after, or something that is not known.

    Example: acktrail status --group 'fraud-*'
    """
    every_ms = min(duration_ms("--every", every), _LONGEST_MS)
    stale = dt.timedelta(milliseconds=duration_ms("--stale-after", stale_after))
    config = lean_tables(tables, tables_options)
    from acktrail.tables.delta.store import Tables
    from acktrail.view.check_rows import stopping_run
    from acktrail.view.cluster_health import cluster_health

    def look() -> tuple[ClusterHealth, dt.datetime, int]:
        now, tables = dt.datetime.now(dt.UTC), Tables(config)
        found = cluster_health(tables, now).of_groups(group or ())
        return found, now, stopping_run(tables, found.run_id)

    while True:
        found, now, stopping = look()
        reasons = found.to_act_on(now, stale)
        if as_json:
            typer.echo(json_line(health_text.health_json(found, now, reasons)))
        elif watch and not sys.stdout.isatty():
            typer.echo(health_text.one_line(found, now, reasons))
        else:
            screen = health_text.screen(found, now, reasons, stopping=stopping, lines=_lines())
            typer.echo(_REDRAW + screen if watch else screen, nl=not watch)
        if not watch:
            break
        sys.stdout.flush()
        time.sleep(every_ms / 1000)
    if reasons:
        raise typer.Exit(ACT_ON_IT)


def _lines() -> int:
    """How many lines the answer may have: those of the terminal, without the one of the next prompt."""
    return shutil.get_terminal_size().lines - 1 if sys.stdout.isatty() else _LINES
