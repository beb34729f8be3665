"""Facts of one cluster from its tables: which it is, how old and how complete the export is, the newest verdicts. No
broker is asked."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.connect.source_batches import LOG_REPLACED, LOST_FROM_TABLES, PRUNED
from acktrail.tables.cluster_check import EXPORTED_TABLES, cluster_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import SAMPLED, newest_reconciliation
from acktrail.times import utc_text

_UNKNOWN_TOPIC: Final = 3
LOSSES: Final = (PRUNED, LOST_FROM_TABLES, LOG_REPLACED)
"""Gaps that are losses. The others are what a person asked for, or what was pruned before there was an export."""


class NotKnown(Exception):
    """Why something is not known."""


def cluster(tables: Tables) -> str | None:
    """The cluster of the tables; None: nothing was exported yet."""
    snapshots = filter(None, map(tables.snapshot, EXPORTED_TABLES))
    return next(filter(None, map(cluster_of, snapshots)), None)


def newest_export(tables: Tables) -> dt.datetime:
    """When an export or an observation last wrote. Raises NotKnown."""
    instants = [greatest(tables, "export_ranges", "exported_at")]
    instants += [greatest(tables, name, "observed_at") for name in SAMPLED]
    newest: dt.datetime | None = max((each for each in instants if each is not None), default=None)
    if newest is None:
        raise NotKnown("nothing was exported yet")
    return newest


def newest_verdicts(tables: Tables) -> dict[str, Any]:
    """When the newest reconciliation was (`reconciled_at`), and its share partitions by verdict (`verdicts`). Raises
    NotKnown."""
    run, instant = newest_reconciliation(tables)
    if run is None:
        raise NotKnown("nothing was reconciled yet: run `acktrail run reconcile`")
    rows = tables.rows("reconciliations", {"run_id": run}, columns=["verdict"])
    return {"reconciled_at": instant, "verdicts": dict(sorted(Counter(row["verdict"] for row in rows).items()))}


def no_share_group(tables: Tables, run_id: str) -> str | None:
    """The sentence that the observation `run_id` saw no share group, and when; None: it saw one, or may not have seen
    one. A look that found nothing has a row about the state topic."""
    own, columns = {"run_id": run_id}, ["observed_at", "error_code"]
    if tables.rows("group_observations", own, columns=["group_id"]):
        return None
    looks = tables.rows("offset_observations", own, columns=columns)
    if not looks or {row["error_code"] for row in looks} - {0, _UNKNOWN_TOPIC}:
        return None
    return f"no share group on this cluster at {utc_text(max(row['observed_at'] for row in looks))}"


def greatest(tables: Tables, name: str, column: str) -> Any:
    """The greatest value in a column; None: there is none. By the log's statistics, which cut off fractions of a ms;
    files that have none there are read."""
    snapshot = tables.snapshot(name)
    if snapshot is None:
        return None
    said = {path: each[f"max.{column}"] for path, each in snapshot.statistics([f"max.{column}"]).items()}
    known = [_aware(value) for value in said.values() if value is not None]
    silent = [path for path, value in said.items() if value is None]
    if silent:
        read = pc.max(tables.read_files(name, silent, columns=[column])[column]).as_py()
        known += [] if read is None else [read]
    return max(known, default=None)


def _aware(value: Any) -> Any:
    """Statistics may leave out that their instants are in UTC."""
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value


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
