"""Records of a dead-letter topic of share groups to rows of ``dead_letter_records``: one row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from acktrail.errors import InputError, UnsupportedRecord
from acktrail.format.columns.schemas.table_schemas import DEAD_LETTER_RECORDS
from acktrail.format.wire.dead_letter_headers import DeadLetterStatus, read_dead_letter

_FIELDS: Final = ("group_id", "topic", "partition", "offset", "delivery_count", "message")


def dead_letter_rows(records: pa.Table, constants: Mapping[str, str]) -> pa.Table:
    """The rows of `records` (``RECORDS_WITH_HEADERS``), in their order, with `constants` by column. Keys and values are
    not kept: they are copies of what a producer wrote."""
    rows = [{**constants, **row} for row in _rows(records)]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTER_RECORDS)


def _rows(records: pa.Table) -> Iterator[dict[str, Any]]:
    for row in records.to_pylist():
        yield {
            "dlq_partition": row["partition"],
            "dlq_offset": row["offset"],
            "timestamp_ms": row["timestamp"],
            "key_bytes": None if row["key"] is None else len(row["key"]),
            "value_bytes": None if row["value"] is None else len(row["value"]),
            **_content(row["headers"]),
        }


def _content(headers: bytes) -> dict[str, Any]:
    try:
        letter = read_dead_letter(headers)
    except InputError as error:
        is_foreign = isinstance(error, UnsupportedRecord)
        status = DeadLetterStatus.NOT_A_DEAD_LETTER if is_foreign else DeadLetterStatus.MALFORMED_HEADERS
        return {"headers": headers, "decode_status": status.value, "decode_error": error.message}
    return {**{name: getattr(letter, name) for name in _FIELDS}, "decode_status": DeadLetterStatus.DECODED.value}
