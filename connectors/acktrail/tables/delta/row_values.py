"""Rows of a table as objects, for callers that know nothing of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, all_of

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_ANY: Final[Mapping[str, object]] = MappingProxyType({})


def append_rows(
    tables: Tables,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    transactions: Mapping[str, int] = _NOTHING,
    expected: Mapping[str, int | None] | None = None,
    at: TableSnapshot | None = None,
) -> int:
    """One commit of `rows`, columns by name, those that are missing null; gives its version. See `Tables.append`."""
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name])
    return tables.append(name, table, transactions=transactions, expected=expected, at=at)


def read_rows(
    tables: Tables, name: str, equal: Mapping[str, object] = _ANY, *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows whose columns have the values of `equal` (a list: one of them), in no order; none when the table was
    never created. Values are compared, never parsed."""
    return tables.read(name, columns=columns, where=_where(equal, _NOTHING)).to_pylist()


def snapshot_rows(
    snapshot: TableSnapshot,
    equal: Mapping[str, object] = _ANY,
    *,
    least: Mapping[str, int] = _NOTHING,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows of one version of a table, as `read_rows`; `least`: the smallest value that a column may have. Files
    that cannot hold such rows, by their statistics, are not read."""
    return snapshot.read(columns=columns, where=_where(equal, least)).to_pylist()


def _where(equal: Mapping[str, object], least: Mapping[str, int]) -> pc.Expression | None:
    values = ((pc.field(column), value) for column, value in equal.items())
    equals = (field.isin(value) if isinstance(value, list) else field == value for field, value in values)
    return all_of(*equals, *(pc.field(column) >= value for column, value in least.items()))
