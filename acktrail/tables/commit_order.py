"""The order of runs and exports: that of their commits. Clocks of machines differ, so no instant orders them.

An observation has a `run_number` that grows from commit to commit, and the reconciliation of it has the same one; a row
of ``export_ranges`` has the Delta version of ``state_records`` that it is of. An instant is shown, and is compared with
now only where an age is asked for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.tables.delta.store import Tables

NUMBERS: Final = "offset_observations"
"""The table and the app id in it that count observations."""
_OF_RUN: Final = "run_number"
_RANGES: Final = "export_ranges"
_OF_EXPORT: Final = "records_version"
WRITTEN: Final[Mapping[str, str]] = MappingProxyType(
    {_RANGES: "exported_at", "group_observations": "observed_at", NUMBERS: "observed_at"}
)
"""What exports and observations write, each with its column of times."""
SKEW: Final = dt.timedelta(minutes=5)
"""How far clocks of two machines may differ before a time counts as one in the future."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def next_number(tables: Tables, now: dt.datetime) -> int:
    """The `run_number` of an observation that is committed next."""
    return max(number_at(now), (tables.transaction_version(NUMBERS, NUMBERS) or 0) + 1)


def number_at(instant: dt.datetime) -> int:
    """The `run_number` of an observation of `instant` where none has a greater one."""
    return (instant - _EPOCH) // dt.timedelta(microseconds=1)


def in_order(rows: pa.Table, *, newest_first: bool = False) -> pa.Table:
    """`rows` of runs in the order of their commits."""
    return rows.sort_by([(_OF_RUN, "descending" if newest_first else "ascending")])


def newest_rows(tables: Tables, name: str, columns: Sequence[str]) -> pa.Table:
    """The rows that the newest run or export committed to the table `name`; none: it has no row."""
    column = _OF_EXPORT if name == _RANGES else _OF_RUN
    return tables.read(name, columns=columns, where=pc.field(column) == greatest(tables, name, column))


def exported_before(run_id: str, version: int | None, at: dt.datetime) -> pc.Expression:
    """The rows of ``export_ranges`` of a run's own export, and those up to a `version` of ``state_records``; where that
    is not known (None), up to the time `at`."""
    timely = pc.field("exported_at") <= pa.scalar(at, INSTANT)
    return (pc.field("run_id") == run_id) | (timely if version is None else pc.field(_OF_EXPORT) <= version)


def runs_ahead(tables: Tables, now: dt.datetime) -> dict[str, dt.datetime]:
    """The runs that wrote at a time which lies in the future, each with its latest one: a clock is wrong."""
    found: dict[str, dt.datetime] = {}
    for name, column in WRITTEN.items():
        newest = greatest(tables, name, column)
        if newest is None or newest <= now + SKEW:
            continue
        own = pc.field(column) > pa.scalar(now + SKEW, INSTANT)
        for row in tables.read(name, columns=["run_id", column], where=own).to_pylist():
            found[row["run_id"]] = max(row[column], found.get(row["run_id"], now))
    return dict(sorted(found.items()))


def counted_from_ms(tables: Tables, now_ms: int) -> int:
    """The time (ms since the epoch) from which the ages of rows are counted: that of the newest export where it lies
    before `now_ms`, since the clock of a machine may be ahead of those that export."""
    written = (newest_rows(tables, name, [column])[column] for name, column in WRITTEN.items())
    known = [number_at(at) // 1_000 for times in written if (at := pc.max(times).as_py()) is not None]
    return min(now_ms, max(known, default=now_ms))


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
