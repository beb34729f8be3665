"""The compression of record batches: gzip, snappy, lz4 and zstd, unpacked within a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from acktrail.errors import MalformedRecord
from acktrail.format.wire.primitives import INT32
from acktrail.format.wire.record_batch import Compression

LARGEST_UNPACKED: Final = 256 * 1024 * 1024
"""Bytes of one batch's records, unpacked. A broker's own bound on a batch is 1 MB unless it was raised."""
_FREE: Final = 32 << 20
_MOST_TIMES: Final = 250
"""A batch may unpack to this many times its size, or to ``_FREE`` bytes: 20 kB of zstd can stand for 256 MiB."""
_PIECE: Final = 1 << 20
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_SNAPPY_LONGEST_RUN: Final = 22
"""A copy of three bytes stands for at most 64: nothing unpacks to more than 22 times its size."""


def unpacked(compression: Compression, body: bytes, most: int = LARGEST_UNPACKED) -> bytes:
    """The records in `body`, the part of a batch behind its header. Raises MalformedRecord (the data is damaged, cut
    off, more than `most` bytes unpacked, or far more than its size)."""
    return _CODECS[compression](body, min(most, max(_FREE, _MOST_TIMES * len(body))))


def _stream(body: bytes, most: int, *, name: str) -> bytes:
    """What Arrow unpacks as a stream."""
    records = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
            while len(records) <= most and (piece := stream.read(_PIECE)):
                records += piece
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, str(error).partition("\n")[0]) from error
    if len(records) > most:
        raise _too_large(most)
    return bytes(records)


def _snappy(body: bytes, most: int) -> bytes:
    """Framed as Kafka's Java clients and brokers do (xerial: a header, then length and block again and again), or one
    raw block as other clients do."""
    if not body.startswith(_XERIAL_MAGIC):
        return _snappy_block(body, 0, most)
    position, blocks, size = _XERIAL_HEADER, [], 0
    while position < len(body):
        if position + INT32.size > len(body):
            raise _damaged("snappy", "block length is cut off")
        (length,) = INT32.unpack_from(body, position)
        position += INT32.size
        if not 0 <= length <= len(body) - position:
            raise _damaged("snappy", f"block of {length} bytes announced")
        blocks.append(_snappy_block(body[position : position + length], size, most))
        position, size = position + length, size + len(blocks[-1])
    return b"".join(blocks)


def _snappy_block(block: bytes, before: int, most: int) -> bytes:
    """One raw block; `before` bytes were unpacked before it."""
    size = _snappy_size(block)
    if before + size > most:
        raise _too_large(most)
    if size > len(block) * _SNAPPY_LONGEST_RUN:
        raise _damaged("snappy", f"{size} bytes announced in a block of {len(block)}")
    try:
        return bytes(pa.Codec("snappy").decompress(block, decompressed_size=size))
    except (pa.ArrowException, OSError) as error:
        raise _damaged("snappy", str(error).partition("\n")[0]) from error


def _snappy_size(block: bytes) -> int:
    """The unpacked size that a raw block begins with."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _damaged("snappy", "no size")


def _damaged(name: str, why: str) -> MalformedRecord:
    return MalformedRecord(f"{name} data is damaged: {why[:120]}", part="batch", position=0)


def _too_large(most: int) -> MalformedRecord:
    return MalformedRecord(f"more than {most} bytes unpacked", part="batch", position=0)


_CODECS: Final[Mapping[Compression, Callable[[bytes, int], bytes]]] = {
    Compression.NONE: lambda body, _most: body,
    Compression.GZIP: partial(_stream, name="gzip"),
    Compression.SNAPPY: _snappy,
    Compression.LZ4: partial(_stream, name="lz4"),
    Compression.ZSTD: partial(_stream, name="zstd"),
}
