"""The metrics of a worker over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client.registry import Collector

from acktrail.connect.metrics.export_lag import LagWatch
from acktrail.connect.metrics.metrics_endpoint import collectors_served
from acktrail.connect.metrics.worker_metrics import WorkerMetrics
from acktrail.connect.runtime.worker import Worker


@contextmanager
def metrics_served(worker: Worker, listener: str, more: Iterable[Collector] = ()) -> Iterator[str]:
    """Serve ``/metrics`` of `worker`, and of `more`, at `listener` within the block; gives the address. Raises as
    `collectors_served`."""
    lag = LagWatch(worker.runs)
    with collectors_served([WorkerMetrics(worker, lag), *more], listener, "metrics.listener") as address:
        lag.start()
        try:
            yield address
        finally:
            lag.stop()
