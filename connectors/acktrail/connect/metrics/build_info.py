"""The version of acktrail as a metric."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily

from acktrail import __version__


def build_info() -> GaugeMetricFamily:
    """1, with the version as a label."""
    build = GaugeMetricFamily("acktrail_build_info", "Version of acktrail.", labels=["version"])
    build.add_metric([__version__], 1)
    return build
