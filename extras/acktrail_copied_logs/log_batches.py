"""The record batches of a log segment: the intact ones, and what lies between.

A batch counts when its CRC-32C is right. The checksum does not cover the offset: of two neighbours whose offsets
collide one is wrong, and where nothing says which, neither counts. After a damaged batch reading continues after its
length if a batch begins there, else at the next intact batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

import google_crc32c

from acktrail.errors import MalformedRecord
from acktrail.format.wire.record_batch import CHECKED_FROM, HEADER_BYTES, BatchHeader, read_header

_LARGEST_BATCH: Final = 64 * 1024 * 1024
"""Bytes of one batch. A broker's own bound is 1 MB unless it was raised; a greater length is treated as damage."""
_WINDOW: Final = 1 << 20
_HEADER_LIKE: Final = re.compile(rb"(?=[\x00-\x7f].{7}[\x00-\x04].{7}\x02.{4}\x00[\x00-\x7f])", re.DOTALL)
"""Where a header may begin: offset, length, magic 2 and attributes as they can be."""
_SEARCH_FACTOR: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class IntactBatch:
    """A batch with the right checksum; `body` is what follows the header, still compressed."""

    position: int
    header: BatchHeader
    body: bytes

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.position + self.header.size_bytes


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes from `position` to `end` (exclusive) that are not an intact batch. `header` is what their first bytes
    decode to, None where they are not a header; `is_torn`: the file ends inside it."""

    position: int
    end: int
    header: BatchHeader | None
    reason: str
    is_torn: bool = False


def read_pieces(file: BinaryIO) -> Iterator[IntactBatch | Fragment]:
    """Everything in `file` in its order, nothing left out but zeros at its end (room that was taken in advance).
    Memory: two batches. Cost: one reading, and a search through what is damaged.

    Of three batches of 100 bytes the second one has a wrong byte behind its header::

        0 to 100    the checksum is right             IntactBatch, offsets 0 to 1
        100 to 200  wrong, the header says 100 bytes  Fragment: at 200 begins a batch with later offsets
        200 to 300  the checksum is right             IntactBatch, offsets 4 to 5
    """
    last, previous, is_doubtful = -1, None, False
    for piece in _pieces(file):
        if previous is not None:
            follows = piece.header.base_offset if isinstance(piece, IntactBatch) else None
            collides = follows is not None and last < follows <= previous.header.last_offset
            checked = _placed(previous, last, is_doubtful=is_doubtful or collides)
            last = last if isinstance(checked, Fragment) else previous.header.last_offset
            is_doubtful = collides and previous.header.base_offset > last
            yield checked
        previous = piece if isinstance(piece, IntactBatch) else None
        if previous is None:
            is_doubtful = False
            yield piece
    if previous is not None:
        yield _placed(previous, last, is_doubtful=is_doubtful)


def _pieces(file: BinaryIO) -> Iterator[IntactBatch | Fragment]:
    """Batches by their checksums, and what lies between."""
    size = file.seek(0, 2)
    position, offset = 0, -1
    while position < size:
        piece = _at(file, position, size)
        if isinstance(piece, Fragment):
            file.seek(position)
            if all(part.count(0) == len(part) for part in iter(lambda: file.read(_WINDOW), b"")):
                return
            piece = _measured(file, piece, size, offset)
        else:
            offset = piece.header.last_offset
        yield piece
        position = piece.end


def _placed(batch: IntactBatch, last: int, *, is_doubtful: bool) -> IntactBatch | Fragment:
    """`batch`, or a fragment if its offsets lie below `last`, the highest before it, or collide with a neighbour's."""
    header = batch.header
    if header.base_offset > last and not is_doubtful:
        return batch
    reason = f"offsets {header.base_offset} to {header.last_offset} collide with those of another batch"
    return Fragment(batch.position, batch.end, header, reason)


def is_log(file: BinaryIO) -> bool:
    """Whether the first bytes can be those of a log segment of message format 2, or there are none."""
    file.seek(0)
    raw = file.read(HEADER_BYTES)
    if not raw.strip(b"\x00"):
        return True
    limits = ((0, 0x00, 0x7F), (8, 0x00, 0x04), (16, 0x02, 0x02))
    return all(len(raw) <= at or least <= raw[at] <= most for at, least, most in limits)


def is_intact(header: BatchHeader, raw: bytes) -> bool:
    """Whether the whole batch in `raw` has the checksum in `header`."""
    return len(raw) == header.size_bytes and google_crc32c.value(raw[CHECKED_FROM:]) == header.crc


def _at(file: BinaryIO, position: int, size: int) -> IntactBatch | Fragment:
    """What begins at `position`. A fragment reaches as far as its header says, or to the end of the file."""
    file.seek(position)
    raw = file.read(HEADER_BYTES)
    try:
        header = read_header(raw)
    except MalformedRecord as error:
        return Fragment(position, size, None, error.fault, is_torn=len(raw) < HEADER_BYTES)
    if header.size_bytes > _LARGEST_BATCH:
        return Fragment(position, size, header, f"a batch of {header.size_bytes} bytes is not believed")
    if header.size_bytes > size - position:
        reason = f"{header.size_bytes} bytes announced, {size - position} left"
        return Fragment(position, size, header, reason, is_torn=True)
    raw += file.read(header.size_bytes - HEADER_BYTES)
    if not is_intact(header, raw):
        return Fragment(position, position + header.size_bytes, header, "the CRC-32C is wrong")
    return IntactBatch(position=position, header=header, body=raw[HEADER_BYTES:])


def _measured(file: BinaryIO, fragment: Fragment, size: int, offset: int) -> Fragment:
    """`fragment` up to the batch that follows it, or to the end of the file; `offset` is the last one before it."""
    header = fragment.header
    if header is not None and fragment.end == fragment.position + header.size_bytes:
        following = None if fragment.end == size else _at(file, fragment.end, size).header
        if fragment.end == size or (following is not None and following.base_offset > header.last_offset):
            return fragment
    end = _next_intact(file, fragment.position + 1, size, offset)
    return replace(fragment, end=end, is_torn=fragment.is_torn and end == size)


def _next_intact(file: BinaryIO, position: int, size: int, offset: int) -> int:
    """Where the next intact batch with offsets above `offset` begins; `size` when there is none. A file made to look
    like headers all over cannot take long: the search ends when it has read as much as 16 times what there is to
    search."""
    budget = _SEARCH_FACTOR * (size - position)
    for candidate in _header_like(file, position):
        piece = _at(file, candidate, size)
        if isinstance(piece, IntactBatch) and piece.header.base_offset > offset:
            return candidate
        budget -= HEADER_BYTES if piece.end == size else piece.end - candidate
        if budget < 0:
            break
    return size


def _header_like(file: BinaryIO, position: int) -> Iterator[int]:
    """Places from `position` on where a header may begin."""
    while True:
        file.seek(position)
        window = file.read(_WINDOW + HEADER_BYTES)
        for match in _HEADER_LIKE.finditer(window):
            if match.start() < _WINDOW:
                yield position + match.start()
        if len(window) <= _WINDOW:
            return
        position += _WINDOW
