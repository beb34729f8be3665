"""``acktrail tables metrics``: what the tables say, for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from acktrail.atomic_files import write_whole
from acktrail.cli.common_options import MetricsListener, OfTables, TablesOptions, TablesRoot
from acktrail.errors import InputError
from acktrail.times import duration_ms

_LONGEST_MS: Final = 86_400_000


def metrics(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Replace this file atomically, for node_exporter's textfile collector."),
    ] = None,
    listen: MetricsListener = None,
    every: Annotated[str, typer.Option("--every", help="With --listen: how often the tables are read.")] = "30s",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
) -> None:
    """Show metrics from the tables, for Prometheus. They cover freshness, gaps, verdicts, findings, quality and
    statuses.

    Without --out and --listen the metrics are printed once. Totals cover every group; only the worst 1,000 groups have
    their own series. An unknown value has no series. Exit code 3: a table cannot be read, or there are no tables; the
    metrics are still written. The command reads tables and connects to no broker. docs/reference/metrics.md lists every
    metric.

    Example: acktrail tables metrics --listen 127.0.0.1:9465
    """
    every_ms = min(duration_ms("--every", every), _LONGEST_MS)
    if out is not None and listen is not None:
        raise InputError("--out and --listen exclude each other", hint="give one of them")
    config = OfTables(tables, tables_options).needed
    from acktrail.activity import stop_on_signals
    from acktrail.serving.metrics_endpoint import collector_served, repeated
    from acktrail.view import table_metrics

    if listen is None:
        text, unread = table_metrics.metrics_text(config)
        write_whole(text, out, makes_folders=False) if out is not None else typer.echo(text, nl=False)
        if unread is not None:
            raise unread
        return
    own = table_metrics.TableMetrics(config)
    with (
        stop_on_signals() as stop,
        collector_served(own, listen, "--listen") as address,
        repeated(own.read, every_ms / 1000, "acktrail-table-metrics"),
    ):
        typer.echo(f"metrics at {address}", err=True)
        stop.wait()
