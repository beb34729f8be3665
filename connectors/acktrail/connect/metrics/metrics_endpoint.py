"""The HTTP endpoint of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from acktrail.connect.bounded_listener import BoundedListener
from acktrail.errors import ConfigurationError


@contextmanager
def collectors_served(collectors: Iterable[Collector], listener: str, option: str) -> Iterator[str]:
    """Serve ``/metrics`` of `collectors` at `listener` (host:port; port 0: any free one) within the block; gives the
    address. Raises ConfigurationError, about `option`, when it cannot listen there."""
    host, separator, port = listener.rpartition(":")
    if not separator or not port.isdecimal():
        raise ConfigurationError(f"{option} {listener!r} is not host:port", hint="for example 127.0.0.1:9464")
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry=registry)
        server.socket = BoundedListener(server.socket)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"{option} {listener}: {reason}", hint="name a free port of this machine") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
