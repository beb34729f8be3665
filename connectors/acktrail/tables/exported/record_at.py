"""Stored state records by their address, and those in quarantine. The log's statistics say which files may hold them;
no other is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import RECORDS

_ADDRESS: Final = ("state_partition", "offset", "timestamp_ms", "decode_status", "decode_error")
_DECODED: Final = "decoded"
_STATUS_BOUNDS: Final = ("min.decode_status", "max.decode_status")
_BOUNDS: Final = ("min.state_partition", "max.state_partition", "min.offset", "max.offset")


def record_at(tables: Tables, state_partition: int, offset: int) -> dict[str, Any] | None:
    """The row of ``state_records`` with this address; None: there is none. Raises as `Tables.read`."""
    snapshot = tables.followed(RECORDS)
    if snapshot is None:
        return None
    where = (pc.field("state_partition") == state_partition) & (pc.field("offset") == offset)
    rows = tables.read_files(RECORDS, files_with(snapshot, state_partition, offset), where=where)
    return rows.slice(0, 1).to_pylist()[0] if rows.num_rows else None


def files_with(snapshot: TableSnapshot, state_partition: int, offset: int) -> Sequence[str]:
    """The files that may hold the record; one without statistics may."""
    found = []
    for path, bounds in snapshot.statistics(_BOUNDS).items():
        first, last, lowest, highest = (bounds[name] for name in _BOUNDS)
        if _may_hold(first, state_partition, last) and _may_hold(lowest, offset, highest):
            found.append(path)
    return found


def _may_hold(least: int | None, value: int, most: int | None) -> bool:
    return least is None or most is None or least <= value <= most


def quarantined_records(tables: Tables) -> pa.Table:
    """Address, time, status and reason of every record that could not be decoded. Raises as `Tables.read`."""
    snapshot = tables.followed(RECORDS)
    bounds = {} if snapshot is None else snapshot.statistics(_STATUS_BOUNDS)
    paths = [path for path, each in bounds.items() if set(each.values()) != {_DECODED}]
    return tables.read_files(RECORDS, paths, columns=_ADDRESS, where=pc.field("decode_status") != _DECODED)
