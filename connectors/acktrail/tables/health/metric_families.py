"""Families of gauges with the cluster's id, for the trunk and for branches (`Branch.metrics`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from acktrail.connect.metrics.label_values import label_value


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
