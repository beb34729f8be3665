"""The HTTP endpoint of metrics, families of gauges, and names from a cluster as harmless values of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from acktrail import __version__
from acktrail.connect.bounded_listener import BoundedListener
from acktrail.errors import ConfigurationError
from acktrail.plain_tables import printable

_MOST: Final = 200
_KEPT: Final = 160


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


def gauge(name: str, about: str, samples: Iterable[tuple[Mapping[str, str], float | None]], *labels: str) -> Metric:
    """A family with the label ``cluster`` before `labels`; a sample without a value is left out."""
    family = GaugeMetricFamily(f"acktrail_{name}", about, labels=["cluster", *labels])
    for values, value in samples:
        if value is not None:
            family.add_metric([label_value(values[label]) for label in ("cluster", *labels)], value)
    return family


def one(name: str, about: str, cluster: str, value: float | None) -> Metric:
    """A family with one series; none where `value` is not known."""
    return gauge(name, about, [({"cluster": cluster}, value)])


def by(name: str, about: str, cluster: str, label: str, counts: Mapping[str, Any]) -> Metric:
    """A family with a series for each of `counts`, by `label`."""
    return gauge(name, about, (({"cluster": cluster, label: key}, value) for key, value in counts.items()), label)
