"""The HTTP endpoint of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.registry import Collector

from acktrail.serving.access import Access
from acktrail.serving.http_server import HttpServer, ListenAddress


@contextmanager
def collector_served(collector: Collector, listener: str, option: str) -> Iterator[str]:
    """Serve ``/metrics`` of `collector` at `listener` (host:port; port 0: any free one) within the block; gives the
    address. No caller needs a token: metrics have no secrets and no records. Raises ConfigurationError, about `option`,
    when it cannot listen there."""
    registry = CollectorRegistry()
    registry.register(collector)
    place = ListenAddress.parse(listener, option)
    with HttpServer(make_asgi_app(registry), place, Access(is_for_all=True)) as server:
        yield f"{server.url}/metrics"


@contextmanager
def repeated(look: Callable[[], object], every_s: float, name: str) -> Iterator[None]:
    """Within the block, `look` is called at once and then every `every_s` seconds, on a thread of its own. One that
    waits for a broker or a storage holds up no scrape, and is not waited for in the end."""
    stop = Event()

    def live() -> None:
        look()
        while not stop.wait(every_s):
            look()

    Thread(target=live, name=name, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
