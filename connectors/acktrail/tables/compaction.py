"""Small files of a table made into few, its rows untouched."""

from __future__ import annotations

from typing import Final

from deltalake.exceptions import DeltaError

from acktrail.tables.layout import writer_properties
from acktrail.tables.snapshot import TableSnapshot

__all__ = ["FULL_FILE_BYTES", "compact_small_files"]

FULL_FILE_BYTES: Final = 256 * 1024
"""A file of at least this size is left alone, so that one compaction never costs more than a few of them."""

_SMALL_FILES: Final = 32
"""So many small files may lie in a table."""
_VERSIONS_A_VACUUM: Final = 1_024


def compact_small_files(snapshot: TableSnapshot, *, more_than: int = _SMALL_FILES) -> bool:
    """Rewrite the small files of a table as few when there are more than `more_than`; whether that was done.

    Rows and app transactions stay as they are. Now and then files that no version within the table's retention needs
    are deleted. A failure, or another writer at the same time, leaves the table as it was: the next call tries again.
    """
    try:
        small = sum(file.size_bytes < FULL_FILE_BYTES for file in snapshot.files())
        if small <= more_than:
            return False
        before = snapshot.version
        snapshot.delta.optimize.compact(target_size=FULL_FILE_BYTES, writer_properties=writer_properties(snapshot.name))
        if before // _VERSIONS_A_VACUUM != (before - more_than) // _VERSIONS_A_VACUUM:
            snapshot.delta.vacuum(dry_run=False)
    except (DeltaError, OSError):
        return False
    return True
