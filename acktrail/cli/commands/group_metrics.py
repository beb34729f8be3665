"""``acktrail groups metrics``: what the brokers say about share groups, for Prometheus."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from acktrail.cli.common_options import BootstrapServer, ClientConfig, MetricsListener, OfCluster
from acktrail.times import duration_ms

_LONGEST_MS: Final = 86_400_000


def metrics(
    listen: MetricsListener = None,
    every: Annotated[str, typer.Option("--every", help="With --listen: how often the brokers are queried.")] = "30s",
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
) -> None:
    """Show lag and age of share groups, for Prometheus. Age is the age of the oldest unfinished record. Members, states
    and start offsets are shown, too. All values come from the brokers. Without --listen they are printed once.

    This needs DESCRIBE on groups and topics. The age also needs READ on the topics: the headers of one or two batches
    of each log are read. The brokers are queried once in each interval of --every, however many scrapers there are. An
    unknown value has no series. While the brokers do not answer, kafka_share_group_exporter_up is 0 and no group has a
    series. docs/reference/metrics.md lists every metric.

    Example: acktrail groups metrics --listen 127.0.0.1:9400
    """
    every_s = min(duration_ms("--every", every), _LONGEST_MS) / 1000
    config = OfCluster(bootstrap_server, client_config).kafka
    from acktrail.activity import stop_on_signals
    from acktrail.serving.metrics_endpoint import collector_served, repeated
    from acktrail.view.live_metrics import LiveMetrics

    with LiveMetrics(config, every_s, partial(typer.echo, err=True)) as own:
        if listen is None:
            typer.echo(own.text(), nl=False)
            return
        with (
            stop_on_signals() as stop,
            collector_served(own, listen, "--listen") as address,
            repeated(own.look, every_s, "acktrail-group-metrics"),
        ):
            typer.echo(f"metrics at {address}", err=True)
            stop.wait()
