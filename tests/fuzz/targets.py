"""What the fuzzer drives: each target takes any bytes, and raises only when a promise is broken. A branch has its own
in ``fuzz_targets.py`` of its tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from samples.dead_letters import headers_of
from samples.fuzzed_pairs import pair
from state_topics.segment_bytes import header_bytes

from acktrail.errors import InputError, MalformedRecord
from acktrail.format.columns.decoding.compression import unpacked
from acktrail.format.columns.decoding.decode_records import decode_records, decode_strictly
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire import group_record
from acktrail.format.wire.dead_letter_headers import read_dead_letter
from acktrail.format.wire.record_batch import Compression
from acktrail_simulation.messages.group_record_encoder import encode as encode_group_record

_MOST_UNPACKED: Final = 1 << 20


def group_records(data: bytes) -> None:
    """Share-group records decode or are refused; what is decoded is what its own bytes spell."""
    if len(data) < 2:
        return
    _, key, value = pair(data)
    try:
        record = group_record.decode(key, value)
    except InputError:
        return
    assert group_record.decode(*encode_group_record(record)) == record


def dead_letters(data: bytes) -> None:
    """The headers of a dead letter are read or refused; what is read is what a broker would write of it."""
    with suppress(InputError):
        found = read_dead_letter(data)
        assert read_dead_letter(header_bytes(headers_of(found))) == found


def columns(data: bytes) -> None:
    """The bulk decoder says of every record what the strict one says."""
    rows = []
    while len(data) >= 4 and len(rows) < 16:
        size = int.from_bytes(data[:2], "big") % 400
        _, key, value = pair(data[2:4] + data[4 : 4 + size])
        rows.append({"partition": 0, "offset": len(rows), "timestamp": -1, "key": key, "value": value})
        data = data[4 + size :]
    raw = pa.Table.from_pylist(rows, schema=RAW_RECORDS)
    assert decode_records(raw).equals(decode_strictly(raw))


def codecs(data: bytes) -> None:
    """Packed data is unpacked within the bound, or refused."""
    if data:
        with suppress(MalformedRecord):
            assert len(unpacked(Compression(data[0] % 5), data[1:], _MOST_UNPACKED)) <= max(_MOST_UNPACKED, len(data))


TARGETS: dict[str, Callable[[bytes], Any]] = {
    "codecs": codecs,
    "columns": columns,
    "dead_letters": dead_letters,
    "group_records": group_records,
}
for _own in Path(__file__).parents[1].glob("*/fuzz_targets.py"):
    TARGETS |= import_module(f"{_own.parent.name}.fuzz_targets").TARGETS
