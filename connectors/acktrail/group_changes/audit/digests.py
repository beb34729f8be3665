"""Hashes of stored rows, by which an edit of them is found. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from acktrail.group_changes.json_values import fingerprint

__all__ = ["row_digest", "rows_digest"]

Row = Mapping[str, Any]


def row_digest(row: Row) -> str:
    """The hash of one row. Null columns do not count: a column that a later release adds changes nothing."""
    return fingerprint({name: _plain(value) for name, value in row.items() if value is not None})


def rows_digest(rows: Iterable[Row]) -> str:
    """The hash of a set of rows, whatever their order."""
    return fingerprint(sorted(row_digest(row) for row in rows))


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
