"""Lines of record dumps (``acktrail_copied_logs.copied_files``)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

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


def _encoded(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode("ascii")
