"""The HTTP endpoint of the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from acktrail.connect.metrics.export_lag import LagWatch
from acktrail.connect.metrics.worker_metrics import WorkerMetrics
from acktrail.connect.runtime.worker import Worker
from acktrail.errors import ConfigurationError


@contextmanager
def metrics_served(worker: Worker, listener: str) -> Iterator[str]:
    """Serve ``/metrics`` of `worker` at `listener` (host:port; port 0: any free one) within the block; gives the
    address. Raises ConfigurationError when it cannot listen there."""
    host, separator, port = listener.rpartition(":")
    if not separator or not port.isdecimal():
        raise ConfigurationError(f"metrics.listener {listener!r} is not host:port", hint="for example 127.0.0.1:9464")
    lag = LagWatch(worker.runs)
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(worker, lag))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics.listener {listener}: {error.strerror}", hint="name a free port of this machine"
        ) from error
    lag.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        lag.stop()
        server.shutdown()
        server.server_close()
        thread.join()
