"""The gaps of the export by their reason: how many, how many offsets, and when the newest was recorded."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from acktrail.connect.source_batches import LOG_REPLACED, LOST_FROM_TABLES, PRUNED
from acktrail.tables.delta.store import Tables

LOSSES: Final = (PRUNED, LOST_FROM_TABLES, LOG_REPLACED)
"""Gaps that are losses. The others are what a person asked for, or what was pruned before there was an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsOfReason:
    """All gaps of one reason; `offsets` are in no row. `newest_at`: when the newest was recorded."""

    gaps: int
    offsets: int
    newest_at: dt.datetime | None


def export_gaps(tables: Tables) -> dict[str, GapsOfReason]:
    """By reason; a reason without a gap is left out. Raises ConfigurationError, RetryableError: the table cannot be
    read."""
    columns = ["gap_first", "gap_last", "gap_reason", "exported_at"]
    rows = tables.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid()).to_pylist()
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        found.setdefault(str(row["gap_reason"]), []).append(row)
    return {reason: _summed(reason, own) for reason, own in sorted(found.items())}


def _summed(reason: str, rows: list[dict[str, object]]) -> GapsOfReason:
    """A break of a log is one offset of the tables that no record of Kafka's ever had."""
    times = [row["exported_at"] for row in rows]
    lost = 0 if reason == LOG_REPLACED else sum(_length(row) for row in rows)
    known = [at for at in times if isinstance(at, dt.datetime)]
    return GapsOfReason(gaps=len(rows), offsets=lost, newest_at=max(known, default=None))


def _length(row: dict[str, object]) -> int:
    first, last = row["gap_first"], row["gap_last"]
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) else 0
