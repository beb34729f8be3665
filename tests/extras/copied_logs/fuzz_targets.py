"""What the fuzzer drives of this branch (``fuzz.targets``)."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kafka.record.util import calc_crc32c
from samples.dump_lines import write_dump
from samples.fuzzed_pairs import pair

from acktrail.errors import ConfigurationError, InputError, MalformedRecord
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.format.wire.record_batch import HEADER_BYTES
from acktrail_copied_logs import log_segment as segment_module
from acktrail_copied_logs.copied_files import read_dump
from acktrail_copied_logs.dialects import RELEASED, Dialect, detect_layout
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.log_batches import Fragment, IntactBatch, is_log, read_pieces
from acktrail_copied_logs.log_segment import ReadReport, SegmentDamage

_DIALECTS: Final[list[Dialect[Any]]] = [
    *(RELEASED[name] for name in ("4.0", "4.1", "4.2")),
    *DRAFTS.values(),
]
"""Drafts are decoded, and written by no release."""


def records(data: bytes) -> None:
    """Any dialect decodes or refuses; what a release's decodes is what its own bytes spell; a sample is judged."""
    if len(data) < 2:
        return
    selector, key, value = pair(data)
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


def dump(data: bytes) -> None:
    """A dump is read or refused; what is read is spelt the same."""
    with TemporaryDirectory() as folder:
        file, found = Path(folder, "dump.jsonl"), list[RawRecord]()
        file.write_bytes(data)
        with suppress(InputError):
            found.extend(read_dump(file))
        if found:
            assert list(read_dump(write_dump(found, file))) == found


TARGETS: Final[dict[str, Callable[[bytes], Any]]] = {"dump": dump, "records": records, "segment": segment}
