"""Compacts the small files of a table; its rows stay as they are."""

from __future__ import annotations

import time
from typing import Final

from deltalake.exceptions import DeltaError

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.errors import AcktrailError
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import writer_properties
from acktrail.tables.delta.table_snapshot import TableSnapshot

FULL_FILE_BYTES: Final = 256 * 1024
"""A file of at least this size is left alone, so that one compaction never costs more than a few of them."""
_SMALL_FILES: Final = 32
"""The number of small files that a table may have."""
_CLAIM: Final = "compacting"
"""The app id whose number is the begin of a compaction in ms since the epoch; 0 or none: there is none. delta-rs lets
two compactions rewrite the same files, which would double their rows: only one may run."""
_FREE: Final = 0
_ABANDONED_AFTER_MS: Final = 3_600_000
"""An older claim is that of a dead process: a compaction takes well below a second."""
_VERSIONS_A_VACUUM: Final = 1_024


def compact_small_files(tables: Tables, snapshot: TableSnapshot, *, more_than: int = _SMALL_FILES) -> bool:
    """Rewrite the small files of a table as few when there are more than `more_than`; whether that was done. Rows and
    positions stay as they are. Now and then files that no version within the table's retention needs are deleted. A
    failure, or a compaction by another process, leaves the table as it was: the next call tries again."""
    nothing = TABLES[snapshot.name].empty_table()

    def move_claim(before: int | None, number: int) -> None:
        tables.append(snapshot.name, nothing, transactions={_CLAIM: number}, expected={_CLAIM: before}, at=snapshot)

    try:
        small = sum(file.size_bytes < FULL_FILE_BYTES for file in snapshot.files())
        if small <= more_than:
            return False
        claimed, now_ms = snapshot.transaction_version(_CLAIM), time.time_ns() // 1_000_000
        if claimed and now_ms < claimed + _ABANDONED_AFTER_MS:
            return False
        move_claim(claimed, now_ms)
        try:
            before, properties = snapshot.version, writer_properties(snapshot.name)
            snapshot.delta.optimize.compact(target_size=FULL_FILE_BYTES, writer_properties=properties)
            if before // _VERSIONS_A_VACUUM != (before - more_than) // _VERSIONS_A_VACUUM:
                snapshot.delta.vacuum(dry_run=False)
        finally:
            move_claim(now_ms, _FREE)
    except (AcktrailError, DeltaError, OSError):
        return False
    return True
