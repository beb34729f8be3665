"""Observations of partitions that no validation saw, slice by slice: a ledger of months does not fit into memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_expectations.suites.partition_observations import OBSERVATION_COLUMNS

OBSERVATIONS: Final = "partition_observations"
LOOK_BACK: Final = dt.timedelta(hours=2)
"""How far before a slice observations are read, to compare with."""
MOST_ROWS: Final = 2_000_000
"""Of a slice, about, without those before it."""

_LEAST: Final = dt.timedelta(minutes=1)
_CLOSE: Final = dt.timedelta(seconds=1)
"""The log's statistics cut instants off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservationSlice:
    """Rows of ``PARTITION_OBSERVATIONS``: those after `since` are to be validated, the others to be compared with."""

    rows: pa.Table
    since: dt.datetime


def observation_slices(
    store: Tables, observed_at: dt.datetime, since: dt.datetime | None
) -> Iterator[ObservationSlice]:
    """The observations after `since` (None: all) up to `observed_at`, oldest first. Where `observed_at` is not after
    `since`, one slice around it: what was observed then is late."""
    if since is not None and observed_at <= since:
        yield ObservationSlice(rows=_read(store, observed_at, observed_at), since=since)
        return
    snapshot = store.snapshot(OBSERVATIONS)
    if snapshot is None:
        return
    files = _files(snapshot)
    begin = (_oldest(files) or observed_at) - _CLOSE if since is None else since
    step = _step(files, begin, observed_at)
    while begin < observed_at:
        end = min(begin + step, observed_at)
        yield ObservationSlice(rows=_read(store, begin, end), since=begin)
        begin = end


def _read(store: Tables, begin: dt.datetime, end: dt.datetime) -> pa.Table:
    at = pc.field("observed_at")
    where = (at >= pa.scalar(begin - LOOK_BACK)) & (at <= pa.scalar(end))
    return store.read(OBSERVATIONS, columns=OBSERVATION_COLUMNS, where=where)


def _files(snapshot: TableSnapshot) -> list[dict[str, Any]]:
    names = ("min.observed_at", "max.observed_at", "num_records")
    return list(snapshot.statistics(names).values())


def _oldest(files: list[dict[str, Any]]) -> dt.datetime | None:
    known = [_aware(each["min.observed_at"]) for each in files if each["min.observed_at"] is not None]
    return min(known, default=None)


def _step(files: list[dict[str, Any]], begin: dt.datetime, end: dt.datetime) -> dt.timedelta:
    rows = sum(each["num_records"] or 0 for each in files if _may_be_after(each["max.observed_at"], begin))
    return max((end - begin) * min(1.0, MOST_ROWS / max(rows, 1)), _LEAST)


def _may_be_after(newest: dt.datetime | None, begin: dt.datetime) -> bool:
    return newest is None or _aware(newest) + _CLOSE > begin


def _aware(instant: dt.datetime) -> dt.datetime:
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=dt.UTC)
