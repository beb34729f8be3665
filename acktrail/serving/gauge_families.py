"""Families of metrics for Prometheus, and names from a cluster as harmless values of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from acktrail import __version__
from acktrail.package_data import MetricDefinition, metric_definitions
from acktrail.text_tables import printable

_MOST: Final = 200
_KEPT: Final = 160


Definitions = Mapping[str, MetricDefinition]
Family = CounterMetricFamily | GaugeMetricFamily


def family_of(definition: MetricDefinition, *before: str) -> Family:
    """An empty family, with the labels `before` those of its definition."""
    make = CounterMetricFamily if definition.name.endswith("_total") else GaugeMetricFamily
    return make(definition.name, definition.about, labels=[*before, *definition.labels])


def build_info() -> Family:
    """1, with the version as a label."""
    (definition,) = metric_definitions("acktrail.serving", "build").values()
    build = family_of(definition)
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


def each(definitions: Definitions, cluster: str, name: str, samples: Iterable[tuple[Any, ...]]) -> Metric:
    """The family ``acktrail_<name>`` with the label ``cluster`` before its own. Its series are `samples`: the values of
    its own labels, then the number; one without a number is left out."""
    family = family_of(definitions[f"acktrail_{name}"], "cluster")
    for *values, number in samples:
        if number is not None:
            family.add_metric([*map(label_value, (cluster, *values))], number)
    return family


def one(definitions: Definitions, cluster: str, name: str, number: float | None) -> Metric:
    """A family with one series; none where `number` is not known."""
    return each(definitions, cluster, name, [(number,)])


def by(definitions: Definitions, cluster: str, name: str, counts: Mapping[str, Any]) -> Metric:
    """A family with one label of its own, and a series for each of `counts`."""
    return each(definitions, cluster, name, counts.items())


class _Gauge(Protocol):
    """A number with its name, what it is about, and its labels."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


def families(gauges: Iterable[_Gauge]) -> Iterator[Metric]:
    """A family for each name; all gauges of one name have the same labels."""
    found: dict[str, GaugeMetricFamily] = {}
    for gauge in gauges:
        family = found.get(gauge.name)
        if family is None:
            family = found[gauge.name] = GaugeMetricFamily(gauge.name, gauge.about, labels=list(gauge.labels))
        family.add_metric([label_value(value) for value in gauge.labels.values()], gauge.value)
    yield from found.values()
