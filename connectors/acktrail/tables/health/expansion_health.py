"""How many expansions of topics there are, and what the audit proves of groups across them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from acktrail.tables.delta.store import Tables

START_VERDICTS: Final = ("ok", "skipped_records", "uninitialized", "unknown")
_COUNTED: Final = (("partition_expansions", "status"), ("ordering_audits", "verdict"), ("start_audits", "verdict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionHealth:
    """Of the newest audit: expansions by status, audited destinations of groups by verdict on order, and starts of
    groups in added partitions by verdict. What has none is counted as ``none given``."""

    statuses: Mapping[str, int]
    verdicts: Mapping[str, int]
    starts: Mapping[str, int]


def expansion_health(tables: Tables) -> ExpansionHealth | None:
    """None: no audit was made yet. Raises ConfigurationError, RetryableError: a table cannot be read."""
    if not tables.exists("partition_expansions"):
        return None
    statuses, verdicts, starts = (_counts(tables, *each) for each in _COUNTED)
    return ExpansionHealth(statuses=statuses, verdicts=verdicts, starts=starts)


def _counts(tables: Tables, name: str, column: str) -> dict[str, int]:
    rows: list[dict[str, Any]] = tables.read(name, columns=[column])[column].value_counts().to_pylist()
    found: Counter[str] = Counter()
    for row in rows:
        found[row["values"] or "none given"] += row["counts"]
    return dict(found)
