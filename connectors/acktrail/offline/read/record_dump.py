"""Record dumps: one record of the state topic a line, as JSON.

A line is ``{"partition": int, "offset": int, "timestamp": int, "key": base64|null, "value": base64|null}``, timestamp
in ms. ``.jsonl`` may be compressed: ``.jsonl.gz``, ``.jsonl.zst``.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acktrail.errors import MalformedFile
from acktrail.offline.read.codecs import reason_of, unpacked_bytes
from acktrail.wire.raw_record import RawRecord

DUMP_SUFFIX: Final = ".jsonl"


def read_dump(file: Path) -> Iterator[RawRecord]:
    """Every record of one dump, in its own order. Raises UnknownName (the file does not exist), MalformedFile (the file
    is not a dump, is cut off, or a line is not a record; it names file and line)."""
    number = 0
    try:
        with unpacked_bytes(file) as raw, io.TextIOWrapper(raw, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _record(line, str(file), number)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MalformedFile("the compressed data is damaged or cut off", file=str(file), line=number + 1) from error
    except UnicodeDecodeError as error:
        raise MalformedFile("not UTF-8 text", file=str(file), line=number + 1) from error
    except OSError as error:
        raise MalformedFile(reason_of(error), file=str(file), line=number + 1) from error


def _record(line: str, file: str, number: int) -> RawRecord:
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise MalformedFile("not JSON: the line is damaged or cut off", file=file, line=number) from error
    if not isinstance(fields, dict):
        raise MalformedFile("not a JSON object", file=file, line=number)
    return RawRecord(
        state_partition=_integer(fields, "partition", 31, file, number),
        offset=_integer(fields, "offset", 63, file, number),
        timestamp_ms=_integer(fields, "timestamp", 63, file, number),
        key=_decoded(fields, "key", file, number),
        value=_decoded(fields, "value", file, number),
    )


def _integer(fields: dict[str, object], name: str, bits: int, file: str, number: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFile(f"{name!r} is no integer", file=file, line=number)
    if not -1 <= value < 1 << bits:
        raise MalformedFile(f"{name!r} is out of range", file=file, line=number)
    return value


def _decoded(fields: dict[str, object], name: str, file: str, number: int) -> bytes | None:
    if name not in fields:
        raise MalformedFile(f"{name!r} is missing", file=file, line=number)
    text = fields[name]
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]  # a wrong type raises
    except (binascii.Error, ValueError, TypeError) as error:
        raise MalformedFile(f"{name!r} is no base64", file=file, line=number) from error
