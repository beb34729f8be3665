"""Copied files that are compressed (``.gz``, ``.zst``), unpacked within bounds.

A file of a few kB can unpack to gigabytes, which would fill memory as records, or the disk. What must be seekable is
unpacked into a temporary file. The zeros of a segment take no room there: a broker takes room for a segment in advance,
and a copy of it ends in zeros.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from acktrail.errors import MalformedFile, UnknownName

SEGMENT_SUFFIX: Final = ".log"
READ_ERRORS: Final = (OSError, EOFError, zlib.error)
"""What reading a file raises; a compressed one that is cut off or damaged any of them."""
FREE_BYTES: Final = 64 << 20
MOST_TIMES: Final = 250
"""Records are unpacked to up to this many times the size of their file, or to ``FREE_BYTES``. Those of a state topic
unpack to ten to fifty times."""
LARGEST_SEGMENT: Final = (1 << 31) - 1
"""Bytes, by Kafka's ``segment.bytes``, which is an INT."""
_PIECE: Final = 1 << 20
_UNPACKING: Final[Mapping[str, Callable[[BinaryIO], Any]]] = {
    ".gz": gzip.open,  # unlike Arrow's, it reads over zeros behind the end
    ".zst": lambda raw: pa.CompressedInputStream(pa.PythonFile(raw), "zstd"),
}


class _Bounded(io.RawIOBase):
    """The bytes of `plain`, of `file`, which is compressed. Those of a segment are few without its zeros. Raises
    MalformedFile: they are more than a file of that size may unpack to."""

    def __init__(self, plain: Any, file: Path) -> None:
        self._plain, self._file, self._size = plain, file, 0
        self._is_segment = bare_suffix(file) == SEGMENT_SUFFIX
        self._most = max(FREE_BYTES, MOST_TIMES * file.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._plain.read(len(buffer))
        buffer[: len(piece)] = piece
        if not (self._is_segment and piece.count(0) == len(piece)):
            self._size += len(piece)
        if self._size > self._most:
            message = f"unpacks to more than {self._most >> 20} MiB, over {MOST_TIMES} times its size"
            hint = "no copied log is so alike: is it the right file? Unpack it yourself if it is"
            raise MalformedFile(message, file=str(self._file), hint=hint)
        return len(piece)


def bare_suffix(file: Path) -> str:
    """The extension of the format: ``.log`` for ``state.log.gz``."""
    return (file.with_suffix("") if file.suffix in _UNPACKING else file).suffix


@contextmanager
def unpacked_bytes(file: Path) -> Iterator[BinaryIO]:
    """The bytes of `file`, decompressed, to be read once from begin to end. Raises UnknownName: it does not exist;
    MalformedFile, also while it is read: it unpacks to far more than its size."""
    if not file.exists():
        raise UnknownName("file", str(file))
    with file.open("rb") as raw:
        if file.suffix not in _UNPACKING:
            yield raw
            return
        with _UNPACKING[file.suffix](raw) as plain:
            yield io.BufferedReader(_Bounded(plain, file), _PIECE)


@contextmanager
def open_file(file: Path, magic: bytes = b"") -> Iterator[BinaryIO]:
    """`file` for reading, seekable: a compressed one that begins with `magic` is unpacked into a temporary file first.
    Raises UnknownName (it does not exist), MalformedFile (it cannot be read, or its compressed data is damaged, cut
    off, no such file, or too large)."""
    try:
        with unpacked_bytes(file) as raw:
            if file.suffix not in _UNPACKING:
                yield raw
                return
            with tempfile.TemporaryFile() as unpacked:
                _unpack(raw, unpacked, file, magic)
                yield unpacked
    except READ_ERRORS as error:
        raise MalformedFile(reason_of(error), file=str(file)) from error


def _unpack(raw: BinaryIO, unpacked: BinaryIO, file: Path, magic: bytes) -> None:
    size = 0
    while piece := raw.read(_PIECE):
        if not size and not piece.startswith(magic):
            hint = "is it the right file?"
            raise MalformedFile(f"no {bare_suffix(file)[1:]} file: it begins otherwise", file=str(file), hint=hint)
        size += len(piece)
        if size > LARGEST_SEGMENT and bare_suffix(file) == SEGMENT_SUFFIX:
            text, hint = "unpacks to more than 2 GiB, and no segment of a broker is larger", "is it the right file?"
            raise MalformedFile(text, file=str(file), hint=hint)
        if piece.count(0) == len(piece):
            unpacked.seek(size)
        else:
            unpacked.write(piece)
    unpacked.truncate(size)
    unpacked.seek(0)


def reason_of(error: Exception) -> str:
    """The system's message of one of ``READ_ERRORS``, in lower case; those about compressed data have none."""
    return (getattr(error, "strerror", None) or "the compressed data is damaged or cut off").lower()
