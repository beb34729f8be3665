"""Files of copied records, by extension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from acktrail.offline.dump import read_dump
from acktrail.wire.raw_record import RawRecord

__all__ = ["read_files", "sample_of"]

_SAMPLE: Final = 1_000
"""Records of each file that are looked at to find the dialect."""


def read_files(files: Iterable[Path]) -> Iterator[RawRecord]:
    """Every record of `files`, file by file in their own order.

    Raises:
        UnknownName: a file does not exist.
        MalformedFile: a file is none of the formats, is cut off, or has something that is no record; it says where.
    """
    for file in files:
        yield from read_dump(file)


def sample_of(files: Sequence[Path]) -> Iterator[RawRecord]:
    """The first records of each file; raises as `read_files`."""
    for file in files:
        yield from islice(read_files([file]), _SAMPLE)
