"""Raw records of ``__consumer_offsets`` to rows of ``group_records``; what is not about share groups is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import GROUP_RECORDS
from acktrail.format.wire.group_record import OTHER_TYPES, decode
from acktrail.format.wire.primitives import INT16
from acktrail.format.wire.raw_record import DecodeStatus, RawRecord, decode_with
from acktrail.model.group_records import GroupRecordType, ShareGroupRecord, ShareGroupTombstone

_OTHERS: Final = pa.array([INT16.pack(number) for number in sorted(OTHER_TYPES)], pa.binary())
_COLUMNS: Final = {
    "assignment_epoch": "epoch",
    "member_epoch": "epoch",
    "previous_member_epoch": "previous_epoch",
    "state": "member_state",
}
"""Fields whose column has another name."""


class GroupRows(NamedTuple):
    """Rows of ``group_records``, how many of them could not be decoded, and how many records are not about share
    groups: records = decoded + quarantined + other."""

    rows: pa.Table
    quarantined: int
    other: int


def group_rows(records: pa.Table, *, cluster_id: str, run_id: str) -> GroupRows:
    """The rows of `records` (``RAW_RECORDS``), in their order. Keys of types that Kafka 4.4 does not have are kept,
    not decoded: they may be about share groups."""
    is_other = pc.is_in(pc.binary_slice(records.column("key"), 0, INT16.size), value_set=_OTHERS)
    own = records.filter(pc.invert(is_other))
    rows = [{"cluster_id": cluster_id, "run_id": run_id, **row} for row in _rows(own)]
    quarantined = sum(row["decode_status"] != DecodeStatus.DECODED for row in rows)
    return GroupRows(pa.Table.from_pylist(rows, schema=GROUP_RECORDS), quarantined, records.num_rows - len(rows))


def _rows(records: pa.Table) -> Iterator[dict[str, Any]]:
    for row in records.to_pylist():
        raw = RawRecord(
            state_partition=row["partition"],
            offset=row["offset"],
            timestamp_ms=row["timestamp"],
            key=row["key"],
            value=row["value"],
        )
        found = decode_with(decode, raw)
        yield {
            "group_partition": raw.state_partition,
            "offset": raw.offset,
            "timestamp_ms": raw.timestamp_ms,
            "key": raw.key,
            "value": raw.value,
            **({} if found.record is None else _content(raw.key, found.record)),
            "decode_status": found.status.value,
            "decode_error": found.reason,
        }


def _content(key: bytes | None, record: ShareGroupRecord) -> dict[str, Any]:
    kind = GroupRecordType(INT16.unpack_from(key or b"")[0])
    fields = {_COLUMNS.get(name, name): value for name, value in asdict(record).items()}
    return {**fields, "record_type": kind.name.lower(), "is_tombstone": isinstance(record, ShareGroupTombstone)}
