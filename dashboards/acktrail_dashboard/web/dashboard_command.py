"""``acktrail dashboard serve``: the tables as web pages, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import typer

from acktrail.cli.common_options import TablesOptions
from acktrail.config import TablesConfig

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(name="dashboard")
def _command(
    tables: str | None = typer.Option(None, help="Root of the tables: a folder or URI. [ACKTRAIL_TABLES]"),
    tables_options: TablesOptions = None,
    host: str = typer.Option("127.0.0.1", help="Address to listen on. Others than this machine's need a token."),
    port: int = typer.Option(8085, help="Port to listen on; 0: any free one.", min=0, max=65_535),
    token_file: Path | None = typer.Option(
        None, help="File with the token that readers must have. [ACKTRAIL_DASHBOARD_TOKEN holds the token]"
    ),
    allow_host: list[str] = typer.Option(  # typer's way to say it
        [], help="A name that readers reach the dashboard by, behind a proxy; may be repeated."
    ),
) -> None:
    """Show the tables as web pages until Ctrl-C: statuses, groups, share partitions, the fate of a record.

    Read only. On this machine alone it asks for nothing; listening on another address needs a token.

    Example: acktrail dashboard serve --tables ./tables
    """
    from acktrail_dashboard.web.serving import dashboard_server

    found = TablesConfig.from_environment(tables, tables_options)
    server = dashboard_server(found, host=host, port=port, token_file=token_file, hosts=tuple(allow_host))
    typer.echo(f"dashboard: {server.url}/", err=True)
    server.run()
