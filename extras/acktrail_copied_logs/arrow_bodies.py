"""How much the batches of an Arrow file or stream unpack to. Arrow allocates what each compressed buffer announces, and
20 kB can stand for gigabytes."""

from __future__ import annotations

from struct import unpack_from
from typing import BinaryIO, Final

import pyarrow as pa

_HEADER: Final = 2
_DATA: Final = 1
_BUFFERS: Final = 2
_COMPRESSION: Final = 3
"""Fields of the tables ``Message``, ``DictionaryBatch`` and ``RecordBatch`` of Arrow's format (``Message.fbs``)."""


def unpacked_size(raw: BinaryIO) -> tuple[int, int | None]:
    """Bytes of all batches from the place of `raw` on, unpacked, and the number of record batches (None: not known,
    some bytes are damaged, where every other reader ends, too). Any error: they are no batches."""
    size = count = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(raw):
            count += message.type == "record batch"
            if message.type in {"record batch", "dictionary"}:
                size += _size_of(memoryview(message.metadata), message.body, is_dictionary=message.type == "dictionary")
    except (pa.ArrowException, OSError):
        return size, None
    return size, count


def _size_of(head: memoryview, body: pa.Buffer, *, is_dictionary: bool) -> int:
    table = _child(head, _unsigned(head, 0), _HEADER)
    batch = _child(head, table, _DATA) if is_dictionary else table
    if not _field(head, batch, _COMPRESSION):
        return int(body.size)
    buffers = _child(head, batch, _BUFFERS)
    own = memoryview(body)
    size = 0
    for number in range(_unsigned(head, buffers)):
        begin, length = unpack_from("<qq", head, buffers + 4 + 16 * number)
        announced = unpack_from("<q", own, begin)[0] if length else 0
        size += max(announced, length)
    return size


def _field(head: memoryview, table: int, number: int) -> int:
    """The place of a field of a flatbuffer's table; 0: it is not there."""
    fields = table - int(unpack_from("<i", head, table)[0])
    length, slot = int(unpack_from("<H", head, fields)[0]), 4 + 2 * number
    offset = int(unpack_from("<H", head, fields + slot)[0]) if slot < length else 0
    return table + offset if offset else 0


def _child(head: memoryview, table: int, number: int) -> int:
    place = _field(head, table, number)
    return place + _unsigned(head, place)


def _unsigned(head: memoryview, place: int) -> int:
    return int(unpack_from("<I", head, place)[0])
