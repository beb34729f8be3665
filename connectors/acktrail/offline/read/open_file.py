"""Seekable binary files; compressed ones are unpacked into a temporary file first."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from acktrail.errors import MalformedFile, MissingDependency, UnknownName

COMPRESSED_SUFFIXES: Final = (".gz", ".zst")


def bare_suffix(file: Path) -> str:
    """The extension of the format: ``.log`` for ``state.log.gz``."""
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
    """The system's message of `error`, in lower case."""
    return (error.strerror or "cannot be read").lower()


def _unpack(file: Path, raw: BinaryIO, unpacked: BinaryIO) -> None:
    try:
        if file.suffix == ".gz":
            with gzip.open(raw) as plain:
                shutil.copyfileobj(plain, unpacked)
        else:
            with zstandard_stream(raw) as plain:
                shutil.copyfileobj(plain, unpacked)
    except (gzip.BadGzipFile, zlib.error, EOFError, OSError) as error:
        raise MalformedFile("the compressed data is damaged or cut off", file=str(file)) from error
    unpacked.seek(0)


def zstandard_stream(raw: BinaryIO) -> Any:
    """The decompressed bytes of a Zstandard file, as a readable file."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingDependency("reading .zst needs pyarrow", hint="install acktrail[tables]") from error
    return pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
