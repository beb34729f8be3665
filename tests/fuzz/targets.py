"""What the fuzzer drives: each target takes any bytes, and raises only when a promise is broken."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from kafka.record.util import calc_crc32c
from samples.dead_letters import headers_of
from samples.dump_lines import write_dump
from state_topics.segment_bytes import header_bytes

from acktrail.branches import loaded
from acktrail.errors import ConfigurationError, InputError, MalformedRecord
from acktrail.format.columns.decoding.batch_columns import unpacked
from acktrail.format.columns.decoding.decode_records import decode_records, decode_strictly
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire import group_record
from acktrail.format.wire.dead_letter_headers import read_dead_letter
from acktrail.format.wire.dialects import RELEASED, Dialect, detect_layout
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.format.wire.record_batch import HEADER_BYTES, Compression
from acktrail.offline import log_segment as segment_module
from acktrail.offline.copied_files import read_dump
from acktrail.offline.log_batches import Fragment, IntactBatch, is_log, read_pieces
from acktrail.offline.log_segment import ReadReport, SegmentDamage
from acktrail_simulation.messages.group_record_encoder import encode as encode_group_record

__all__ = ["TARGETS", "as_input", "mended", "use_scratch"]

_NULL: Final = 255
_MOST_UNPACKED: Final = 1 << 20
_DIALECTS: Final[list[Dialect[Any]]] = [
    *(RELEASED[name] for name in ("4.0", "4.1", "4.2")),
    *(each for own in loaded("dialects") for each in own.values()),
]
"""Also those of branches: theirs are decoded, and written by no release."""


def as_input(selector: int, key: bytes | None, value: bytes | None) -> bytes:
    """Key and value as the targets of records take them."""
    head = bytes([selector, _NULL]) if key is None else bytes([selector, len(key)]) + key
    return head + (b"\x00" if value is None else b"\x01" + value)


def _pair(data: bytes) -> tuple[int, bytes | None, bytes | None]:
    selector, length, rest = data[0], data[1], data[2:]
    key = None if length == _NULL else rest[:length]
    rest = rest if key is None else rest[length:]
    return selector, key, rest[1:] if rest[:1] not in (b"", b"\x00") else None


def records(data: bytes) -> None:
    """Any dialect decodes or refuses; what a release's decodes is what its own bytes spell; a sample is judged."""
    if len(data) < 2:
        return
    selector, key, value = _pair(data)
    dialect = _DIALECTS[selector % len(_DIALECTS)]
    with suppress(ConfigurationError):
        detect_layout([(key, value)])
    try:
        record = dialect.decode(key, value)
    except MalformedRecord as error:
        _check_position(error, key, value)
        return
    except InputError:
        return
    if dialect.encode is None:
        return
    with suppress(ValueError):  # a group id may be longer than a key can say once it is spelt again
        assert dialect.decode(*dialect.encode(record)) == record


def _check_position(error: MalformedRecord, key: bytes | None, value: bytes | None) -> None:
    part = key if error.part == "key" else value
    assert 0 <= error.position <= len(part or b"")


def group_records(data: bytes) -> None:
    """Share-group records decode or are refused; what is decoded is what its own bytes spell."""
    if len(data) < 2:
        return
    _, key, value = _pair(data)
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
        _, key, value = _pair(data[2:4] + data[4 : 4 + size])
        rows.append({"partition": 0, "offset": len(rows), "timestamp": -1, "key": key, "value": value})
        data = data[4 + size :]
    raw = pa.Table.from_pylist(rows, schema=RAW_RECORDS)
    assert decode_records(raw).equals(decode_strictly(raw))


def mended(data: bytes) -> bytes:
    """`data` with a right checksum in every batch that its headers lead to: what lies behind one is fuzzed too."""
    raw, position = bytearray(data), 0
    while position + HEADER_BYTES <= len(raw):
        size = int.from_bytes(raw[position + 8 : position + 12], "big", signed=True) + 12
        if not HEADER_BYTES <= size <= len(raw) - position:
            break
        checked = bytes(raw[position + 21 : position + size])
        raw[position + 16] = 2
        raw[position + 17 : position + 21] = calc_crc32c(checked).to_bytes(4, "big")
        position += size
    return bytes(raw)


def segment(data: bytes) -> None:
    """A segment is read to its end whatever it holds: pieces lie one behind the other, and records keep their order."""
    for raw in (data, mended(data)):
        _check_pieces(raw)
        _check_records(raw)


def _check_pieces(raw: bytes) -> None:
    end, offset = 0, -1
    for found in read_pieces(io.BytesIO(raw)):
        assert found.position == end
        assert isinstance(found, IntactBatch | Fragment)
        assert found.end > end
        end = found.end
        if isinstance(found, IntactBatch):
            assert found.header.base_offset > offset
            offset = found.header.last_offset
    assert end <= len(raw)
    assert not raw[end:].strip(b"\x00")


def _check_records(raw: bytes) -> None:
    damage: list[SegmentDamage] = []
    reader = segment_module._Segment(Path("0.log"), io.BytesIO(raw), 0, ReadReport(on_damage=damage.append))
    try:
        found = list(reader.records())
    except InputError:
        assert not is_log(io.BytesIO(raw))
        return
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert all(0 <= d.position < len(raw) and 0 < d.size_bytes <= len(raw) - d.position for d in damage)
    for record in found:
        decode_raw(record)


def codecs(data: bytes) -> None:
    """Packed data is unpacked within the bound, or refused."""
    if data:
        with suppress(MalformedRecord):
            assert len(unpacked(Compression(data[0] % 5), data[1:], _MOST_UNPACKED)) <= max(_MOST_UNPACKED, len(data))


_SCRATCH: list[Path] = []


def use_scratch(folder: Path) -> None:
    """Where targets that read files keep theirs."""
    folder.mkdir(exist_ok=True)
    _SCRATCH[:] = [folder / "dump.jsonl"]


def dump(data: bytes) -> None:
    """A dump is read or refused; what is read is spelt the same."""
    file = _SCRATCH[0]
    file.write_bytes(data)
    found: list[RawRecord] = []
    with suppress(InputError):
        found.extend(read_dump(file))
    if found:
        assert list(read_dump(write_dump(found, file))) == found


TARGETS: Final[dict[str, Callable[[bytes], Any]]] = {
    "codecs": codecs,
    "columns": columns,
    "dead_letters": dead_letters,
    "dump": dump,
    "group_records": group_records,
    "records": records,
    "segment": segment,
}
