"""Metrics of expansions and of what the newest audit proves of groups (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.compute as pc
from prometheus_client.core import Metric

from acktrail.tables.delta.store import Tables
from acktrail.tables.health.metric_families import by, one
from acktrail_expansion.law.partition_ledger import ExpansionStatus
from acktrail_expansion.law.verdict import OrderVerdict


def expansion_metrics(tables: Tables, cluster: str) -> Iterator[Metric]:
    """None before the first audit. Raises ConfigurationError, RetryableError: a table cannot be read."""
    if not tables.exists("partition_expansions"):
        return
    statuses = tables.read("partition_expansions", columns=["status"])["status"]
    verdicts = tables.read("expansion_verdicts", columns=["verdict", "skipped_records"])
    yield by("partition_expansions", "Expansions of topics.", cluster, "status", _counts(statuses, ExpansionStatus))
    yield by(
        *("expansion_verdicts", "Groups in partitions that keys moved to.", cluster, "verdict"),
        _counts(verdicts["verdict"], OrderVerdict),
    )
    skipped = pc.sum(verdicts["skipped_records"]).as_py() or 0
    yield one("expansion_skipped_records", "First records of new partitions that groups never got.", cluster, skipped)


def _counts(values: Any, kinds: Iterable[str]) -> dict[str, int]:
    """By kind; one that this release does not know is counted as ``other``: no table can add series."""
    found = {row["values"]: row["counts"] for row in values.value_counts().to_pylist()}
    known = {str(kind): found.get(str(kind), 0) for kind in kinds}
    return {**known, "other": len(values) - sum(known.values())}
