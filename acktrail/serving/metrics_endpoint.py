"""The HTTP endpoint of metrics, families of gauges, and names from a cluster as harmless values of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from acktrail import __version__
from acktrail.errors import ConfigurationError
from acktrail.serving.bounded_listener import BoundedListener
from acktrail.text_tables import printable

_MOST: Final = 200
_KEPT: Final = 160


@contextmanager
def collector_served(collector: Collector, listener: str, option: str) -> Iterator[str]:
    """Serve ``/metrics`` of `collector` at `listener` (host:port; port 0: any free one) within the block; gives the
    address. Raises ConfigurationError, about `option`, when it cannot listen there."""
    host, separator, port = listener.rpartition(":")
    if not separator or not port.isdecimal():
        raise ConfigurationError(f"{option} {listener!r} is not host:port", hint="for example 127.0.0.1:9464")
    registry = CollectorRegistry()
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


def build_info() -> GaugeMetricFamily:
    """1, with the version as a label."""
    build = GaugeMetricFamily("acktrail_build_info", "Version of acktrail.", labels=["version"])
    build.add_metric([__version__], 1)
    return build


def label_value(name: str) -> str:
    """`name` as it is, if it is printable and at most 200 characters. Else escaped and cut, with the beginning of its
    SHA-256 behind it, so that two names never have one value. (Quotes and backslashes are escaped by the exposition.)

    >>> label_value("orders")
    'orders'
    """
    shown = printable(name)
    if shown == name and len(name) <= _MOST:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown[:_KEPT]}~{digest}"


def each(cluster: str, name: str, about: str, samples: Iterable[tuple[Any, ...]], *labels: str) -> Metric:
    """A family with the label ``cluster`` before `labels`. Its series are `samples`: the values of `labels`, then the
    number; one without a number is left out."""
    family = GaugeMetricFamily(f"acktrail_{name}", about, labels=["cluster", *labels])
    for *values, number in samples:
        if number is not None:
            family.add_metric([*map(label_value, (cluster, *values))], number)
    return family


def one(cluster: str, name: str, about: str, number: float | None) -> Metric:
    """A family with one series; none where `number` is not known."""
    return each(cluster, name, about, [(number,)])


def by(cluster: str, name: str, about: str, label: str, counts: Mapping[str, Any]) -> Metric:
    """A family with a series for each of `counts`, by `label`."""
    return each(cluster, name, about, counts.items(), label)
