"""Copied records (``acktrail_copied_logs.copied_files``): lines of dumps, and tables of column files."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord


def dump_line(record: RawRecord) -> str:
    """The line of `record`, without a newline."""
    return json.dumps(
        {
            "partition": record.state_partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _encoded(record.key),
            "value": _encoded(record.value),
        },
        separators=(",", ":"),
    )


def write_dump(records: Iterable[RawRecord], file: Path) -> Path:
    """A dump of `records`."""
    file.write_text("".join(dump_line(record) + "\n" for record in records), encoding="utf-8")
    return file


def raw_table(records: Iterable[RawRecord]) -> pa.Table:
    """`records` as rows of ``RAW_RECORDS``; a timestamp that is not known is null."""
    rows = [
        (r.state_partition, r.offset, r.timestamp_ms if r.timestamp_ms >= 0 else None, r.key, r.value) for r in records
    ]
    return pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row, strict=True)) for row in rows], schema=RAW_RECORDS)


def _encoded(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode("ascii")
