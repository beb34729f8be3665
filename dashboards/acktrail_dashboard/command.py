"""``acktrail dashboard report``: what a reconcile run found, on the terminal, as JSON, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from acktrail.cli.common_options import TablesOptions
from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail_dashboard.rows.run_tables import RunTables


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(name="report")
def _command(
    tables: str | None = typer.Option(None, help="Root of the tables: a folder or URI. [ACKTRAIL_TABLES]"),
    tables_options: TablesOptions = None,
    run_id: str | None = typer.Option(None, help="The reconcile run. Default: the one observed last."),
    out: Path | None = typer.Option(None, help="Also write the HTML report to this file."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object instead of a table."),
) -> None:
    """Show what a reconcile run found: share partitions, lag, archived records, verdicts, findings.

    --out writes the whole run as one HTML file that needs no network, no script and no server.
    A number that is not known is shown as unknown, with its reason; in JSON it is null.

    Example: acktrail dashboard report --tables ./tables --out report.html
    """
    from acktrail_dashboard.summary import read_run, summarize, summary_json
    from acktrail_dashboard.terminal import print_summary

    rows, chosen = read_run(TablesConfig.from_environment(tables, tables_options), run_id)
    found = summarize(rows, chosen)
    if as_json:
        typer.echo(summary_json(found))
    else:
        print_summary(found)
    if out is not None:
        typer.echo(f"report: {_write(rows, chosen, out)}", err=True)


def report(tables: TablesConfig, run_id: str | None, out: Path, *, broker: str | None = None) -> Path:
    """Write the HTML report of `run_id` (None: the run observed last) to `out`, whose folder is made: all of it or
    nothing. `broker`: what the caller knows of the broker (address, release), for the header.

    Raises:
        InputError: there is no such run. ConfigurationError: the tables cannot be read, or `out` not written.
    """
    from acktrail_dashboard.summary import read_run

    return _write(*read_run(tables, run_id), out, broker=broker)


def _write(rows: RunTables, run_id: str, out: Path, *, broker: str | None = None) -> Path:
    from datetime import UTC, datetime

    from acktrail_dashboard.html.report import render_html, write_whole

    return write_whole(render_html(rows, run_id, written_at=datetime.now(UTC), broker=broker), out)
