"""Files that may be compressed."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from acktrail.errors import MalformedFile, UnknownName
from acktrail.format.columns.decoding.batch_columns import pyarrow_for

_COMPRESSED_SUFFIXES: Final = (".gz", ".zst")


def bare_suffix(file: Path) -> str:
    """The extension of the format: ``.log`` for ``state.log.gz``."""
    return (file.with_suffix("") if file.suffix in _COMPRESSED_SUFFIXES else file).suffix


@contextmanager
def unpacked_bytes(file: Path) -> Iterator[Any]:
    """The bytes of `file`, decompressed, to be read once from begin to end. Raises UnknownName (it does not exist),
    MissingDependency (pyarrow is not installed (``.zst``))."""
    if not file.exists():
        raise UnknownName("file", str(file))
    with file.open("rb") as raw:
        if file.suffix == ".gz":
            with gzip.open(raw) as plain:
                yield plain
        elif file.suffix == ".zst":
            pa = pyarrow_for("reading .zst")
            with pa.CompressedInputStream(pa.PythonFile(raw), "zstd") as plain:
                yield plain
        else:
            yield raw


@contextmanager
def open_file(file: Path) -> Iterator[BinaryIO]:
    """`file` for reading, seekable: a compressed one is unpacked into a temporary file first. Raises UnknownName (it
    does not exist), MalformedFile (it cannot be read, or its compressed data is damaged or cut off)."""
    try:
        with unpacked_bytes(file) as raw:
            if file.suffix not in _COMPRESSED_SUFFIXES:
                yield raw
                return
            with tempfile.TemporaryFile() as unpacked:
                try:
                    shutil.copyfileobj(raw, unpacked)
                except (zlib.error, EOFError, OSError) as error:
                    raise MalformedFile("the compressed data is damaged or cut off", file=str(file)) from error
                unpacked.seek(0)
                yield unpacked
    except OSError as error:
        raise MalformedFile(reason_of(error), file=str(file)) from error


def reason_of(error: OSError) -> str:
    """The system's message of `error`, in lower case."""
    return (error.strerror or "cannot be read").lower()
