"""Which files of a table to write again as one: few files at any time, each row written a fixed number of times.

Files are of three tiers by their rows and bytes. Small ones become files of the middle tier, eight of these a full one,
and a full one is never touched again. So a row is written once when it is exported and at most about three times more,
and a table has few files that are not full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from acktrail.tables.delta.table_snapshot import DataFile

SMALL_ROWS: Final = 131_072
"""A file with fewer rows is small."""
SORTED_ROWS: Final = 262_144
"""Rows that are held in memory at once; small files become files of at most this number."""
FULL_ROWS: Final = 1 << 20
FULL_BYTES: Final = 32 << 20
"""A file with this number of rows or bytes is full."""
MOST_BYTES: Final = 64 << 20
"""Compressed bytes of the files that become one."""
_FAN: Final = 8
"""Files of the middle tier that become full ones."""
MOST_FILES: Final = 4_096
"""Files that one commit replaces."""


def compaction_bins(files: Iterable[DataFile], *, more_than: int) -> list[tuple[DataFile, ...]]:
    """Groups of files, oldest first, each to be written again as one. None where a table has at most `more_than` small
    files and too few of the middle tier."""
    ordered = sorted((file for file in files if not _is_full(file)), key=lambda file: (file.modified_ms, file.path))
    small = [file for file in ordered if _is_small(file)]
    middle = [file for file in ordered if not _is_small(file)]
    bins = list(_bins(small, SORTED_ROWS)) if len(small) > more_than else []
    if len(middle) >= _FAN:
        bins += [own for own in _bins(middle, 2 * FULL_ROWS) if len(own) >= _FAN or _bytes(own) >= FULL_BYTES]
    return [own for own in bins if len(own) > 1]


def _bins(files: Sequence[DataFile], most_rows: int) -> Iterator[tuple[DataFile, ...]]:
    """`files` in their order, cut where rows, bytes or files of a group would be too many."""
    own: list[DataFile] = []
    rows = size = 0
    for file in files:
        rows, size = rows + (file.rows or 0), size + file.size_bytes
        if own and (rows > most_rows or size > MOST_BYTES or len(own) >= MOST_FILES):
            yield tuple(own)
            own, rows, size = [], file.rows or 0, file.size_bytes
        own.append(file)
    if own:
        yield tuple(own)


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(file.size_bytes for file in files)


def _is_full(file: DataFile) -> bool:
    return (file.rows or 0) >= FULL_ROWS or file.size_bytes >= FULL_BYTES


def _is_small(file: DataFile) -> bool:
    return (file.rows or 0) < SMALL_ROWS
