"""Metrics of expansions and of what the newest audit proves of groups (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc
from prometheus_client.core import Metric

from acktrail.connect.metrics.metrics_endpoint import by, one
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.order import ExpansionStatus, OrderVerdict

_COUNTED: Final = (
    ("partition_expansions", "Expansions of topics.", "status", ExpansionStatus),
    ("expansion_verdicts", "Groups in partitions that keys moved to.", "verdict", OrderVerdict),
)


def expansion_metrics(tables: Tables, cluster: str) -> Iterator[Metric]:
    """None before the first audit. Raises ConfigurationError, RetryableError: a table cannot be read."""
    if not tables.exists("partition_expansions"):
        return
    for table, about, column, kinds in _COUNTED:
        found = tables.read(table, columns=[column])[column].value_counts().to_pylist()
        counts = {row["values"]: row["counts"] for row in found}
        yield by(table, about, cluster, column, {kind.value: counts.get(kind, 0) for kind in kinds})
    skipped = pc.sum(tables.read("expansion_verdicts", columns=["skipped_records"])["skipped_records"]).as_py()
    about = "First records of new partitions that groups never got."
    yield one("expansion_skipped_records", about, cluster, skipped or 0)
