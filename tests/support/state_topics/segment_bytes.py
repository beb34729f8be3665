"""Record batches as a broker's disk has them, made by hand: every field can lie."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from kafka.record.util import calc_crc32c

from acktrail.format.wire.raw_record import RawRecord

__all__ = [
    "APPEND_TIME",
    "COMPRESSORS",
    "CONTROL",
    "batch",
    "header_bytes",
    "record_bytes",
    "segment_file",
    "varint",
]

APPEND_TIME: Final = 0x08
CONTROL: Final = 0x20


def varint(number: int) -> bytes:
    """A zigzag number."""
    value = (number << 1) ^ (number >> 63)
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def record_bytes(
    key: bytes | None,
    value: bytes | None,
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """One record of a batch."""
    parts = [b"\x00", varint(timestamp_delta), varint(offset_delta), _nullable(key), _nullable(value)]
    body = b"".join([*parts, header_bytes(headers)])
    return varint(len(body)) + body


def header_bytes(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """The headers of a record, from their count to its end."""
    return b"".join([varint(len(headers)), *(_nullable(name) + _nullable(content) for name, content in headers)])


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _streamed(name: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(data)
            stream.flush()
            stream.close()
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    return compress


def _snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def _xerial(data: bytes) -> bytes:
    """As Kafka's Java code frames it, in blocks of 100 bytes to have several."""
    blocks = [_snappy(data[start : start + 100]) for start in range(0, len(data), 100)]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


COMPRESSORS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "none": (0, bytes),
    "gzip": (1, _zipped),
    "snappy": (2, _xerial),
    "snappy without frames": (2, _snappy),
    "lz4": (3, _streamed("lz4")),
    "zstd": (4, _streamed("zstd")),
}


def batch(
    records: Sequence[RawRecord],
    *,
    compression: str = "none",
    attributes: int = 0,
    last_offset: int | None = None,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """One batch of `records`, which are of one state partition in the order of their offsets."""
    base, created = records[0].offset, records[0].timestamp_ms
    if body is None:
        code, compress = COMPRESSORS[compression]
        attributes |= code
        body = compress(
            b"".join(
                record_bytes(
                    r.key, r.value, offset_delta=r.offset - base, timestamp_delta=r.timestamp_ms - created, headers=[]
                )
                for r in records
            )
        )
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        (records[-1].offset if last_offset is None else last_offset) - base,
        created,
        max(r.timestamp_ms for r in records),
        -1,
        -1,
        -1,
        len(records) if count is None else count,
    )
    checked += body
    head = struct.pack(">qiibI", base, 9 + len(checked), 7, 2, calc_crc32c(checked))
    return head + checked


def segment_file(
    folder: Path, *parts: bytes, partition: str = "__share_group_state-3", name: str = "00000000000000000000.log"
) -> Path:
    """A segment of a partition's log, in a copied log directory."""
    file = folder / partition / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(parts))
    return file
