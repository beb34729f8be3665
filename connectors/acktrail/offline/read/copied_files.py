"""Files of copied records, by extension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from acktrail.errors import MalformedFile
from acktrail.offline.read.column_files import COLUMN_SUFFIXES, read_columns
from acktrail.offline.read.log_segment import SEGMENT_SUFFIX, read_segment
from acktrail.offline.read.open_file import bare_suffix
from acktrail.offline.read.read_report import ReadReport
from acktrail.offline.read.record_dump import DUMP_SUFFIX, read_dump
from acktrail.wire.raw_record import RawRecord

__all__ = ["SUFFIXES", "read_file", "read_files", "sample_of"]

SUFFIXES: Final = (DUMP_SUFFIX, *COLUMN_SUFFIXES, SEGMENT_SUFFIX)
"""Each also with ``.gz`` or ``.zst`` behind it."""

_SAMPLE: Final = 1_000
"""Records of each file that are looked at to find the dialect."""


def read_files(files: Iterable[Path], reading: ReadReport) -> Iterator[RawRecord]:
    """Every record of `files`, file by file in their own order; `reading` is for log segments.

    Raises:
        UnknownName: a file does not exist.
        MalformedFile: a file is none of the formats, is cut off, or has something that is no record; it says where.
            A damaged log segment is no error: `reading` is told.
        MissingDependency: pyarrow is not installed and a file needs it.
    """
    for file in files:
        yield from read_file(file, reading)


def read_file(file: Path, reading: ReadReport) -> Iterator[RawRecord]:
    """Every record of one file; as `read_files`."""
    suffix = bare_suffix(file)
    if suffix == DUMP_SUFFIX:
        return read_dump(file)
    if suffix in COLUMN_SUFFIXES:
        return read_columns(file)
    if suffix == SEGMENT_SUFFIX:
        return read_segment(file, reading)
    hint = f"files end in {', '.join(SUFFIXES)}, or these with .gz or .zst behind"
    raise MalformedFile("not a format that is read", file=str(file), hint=hint)


def sample_of(files: Sequence[Path], reading: ReadReport) -> Iterator[RawRecord]:
    """The first records of each file; raises as `read_files`, and tells nobody of damage."""
    quiet = ReadReport(state_partition=reading.state_partition, control=reading.control)
    for file in files:
        yield from islice(read_file(file, quiet), _SAMPLE)
