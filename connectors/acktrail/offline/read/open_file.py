"""Binary files to seek in, compressed ones unpacked into a temporary file first."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from acktrail.errors import MalformedFile, MissingDependency, UnknownName

__all__ = ["COMPRESSED_SUFFIXES", "bare_suffix", "open_file", "reason_of"]

COMPRESSED_SUFFIXES: Final = (".gz", ".zst")


def bare_suffix(file: Path) -> str:
    """The extension that says the format: that of ``state.log.gz`` is ``.log``."""
    return (file.with_suffix("") if file.suffix in COMPRESSED_SUFFIXES else file).suffix


@contextmanager
def open_file(file: Path) -> Iterator[BinaryIO]:
    """`file` for reading, seekable.

    Raises:
        UnknownName: it does not exist.
        MalformedFile: it cannot be read, or its compressed data is damaged or cut off.
    """
    if not file.exists():
        raise UnknownName("file", str(file))
    try:
        with file.open("rb") as raw:
            if file.suffix not in COMPRESSED_SUFFIXES:
                yield raw
                return
            with tempfile.TemporaryFile() as unpacked:
                _unpack(file, raw, unpacked)
                yield unpacked
    except OSError as error:
        raise MalformedFile(reason_of(error), file=str(file)) from error


def reason_of(error: OSError) -> str:
    """What the system says of `error`, for a person."""
    return (error.strerror or "cannot be read").lower()


def _unpack(file: Path, raw: BinaryIO, unpacked: BinaryIO) -> None:
    try:
        if file.suffix == ".gz":
            with gzip.open(raw) as plain:
                shutil.copyfileobj(plain, unpacked)
        else:
            _unpack_zstandard(raw, unpacked)
    except (gzip.BadGzipFile, zlib.error, EOFError, OSError) as error:
        raise MalformedFile("the compressed data is damaged or cut off", file=str(file)) from error
    unpacked.seek(0)


def _unpack_zstandard(raw: BinaryIO, unpacked: BinaryIO) -> None:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingDependency("reading .zst needs pyarrow", hint="install acktrail[tables]") from error
    with pa.CompressedInputStream(pa.PythonFile(raw), "zstd") as plain:
        while chunk := plain.read(1 << 20):
            unpacked.write(chunk)
