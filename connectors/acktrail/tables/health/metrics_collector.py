"""The tables' metrics for a scrape, read from time to time on a thread of their own: a slow storage does not hold up a
scrape, and its other metrics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from threading import Event, Thread
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from acktrail.config import TablesConfig
from acktrail.connect.metrics.metrics_endpoint import build_info
from acktrail.tables.delta.store import Tables
from acktrail.tables.health.metrics_input import MetricsInput, metrics_input
from acktrail.tables.health.table_metrics import Granularity, SeriesLimits, table_metrics

EVERY_S: Final = 30.0


class TableMetrics(Collector):
    """Shows what was read last; nothing before the first reading. ``read`` reads now; ``start`` begins to do so every
    `every_s` seconds."""

    def __init__(self, config: TablesConfig, limits: SeriesLimits, *, every_s: float = EVERY_S) -> None:
        self._config, self._limits, self._every_s = config, limits, every_s
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="acktrail-table-metrics", daemon=True)
        self._newest: MetricsInput | None = None

    def read(self) -> None:
        """Read the tables now; what cannot be read is shown so."""
        every_queue = self._limits.granularity is Granularity.SHARE_PARTITION
        self._newest = metrics_input(Tables(self._config), dt.datetime.now(dt.UTC), every_queue=every_queue)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; a reading that waits for its storage is not waited for."""
        self._stop.set()

    def collect(self) -> Iterator[Metric]:
        newest = self._newest
        if newest is not None:
            yield from table_metrics(newest, self._limits)

    def _watch(self) -> None:
        while True:
            self.read()
            if self._stop.wait(self._every_s):
                return


class BuildInfo(Collector):
    """The version alone, for a registry without a worker."""

    def collect(self) -> Iterator[Metric]:
        yield build_info()


def metrics_text(config: TablesConfig, limits: SeriesLimits) -> bytes:
    """The metrics of the tables now, in Prometheus's text format."""
    registry = CollectorRegistry()
    found = TableMetrics(config, limits)
    found.read()
    for collector in (BuildInfo(), found):
        registry.register(collector)
    return generate_latest(registry)
