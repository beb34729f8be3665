"""One commit that puts files in the place of others. Commits by others in between win: this one looks again whether its
files are still those of the table, and is dropped where they are not. Nothing is lost, nothing doubled.

delta-rs's own OPTIMIZE was tried (``compact`` and ``z_order`` of 1.6.6, 60 files of ``state_records``). It keeps rows,
app transactions and statistics, in the same time and memory. It lacks three things. Of two that run at once both land,
and every row is there twice. Rows lie in the order of files by size, and a new file is as old as its commit, so that
readers no longer find records in the order of the log. A file is 2.3 times as large as one that this package writes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from deltalake import CommitProperties

from acktrail.errors import ConcurrentCommit
from acktrail.tables.delta.store import Tables, kept_committing
from acktrail.tables.delta.table_commit import commit, remove_action
from acktrail.tables.delta.table_layout import CHUNK, is_append_only
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.export_ranges import COPIED_COMMIT
from acktrail.tables.exported.record_files import DROPPED_ROWS
from acktrail.tables.upkeep.compaction_plan import FULL_BYTES, compaction_bins
from acktrail.tables.upkeep.file_rewrite import Change, Rewrite, discard, rewrite

MAINTAINED: Final = "maintained"
"""The metadata of a commit of the maintenance: what it did."""
_TIERS: Final = 2
"""What became of small files may be enough for the next tier."""
_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.05


def compact_files(
    tables: Tables, name: str, *, more_than: int, below_bytes: int = FULL_BYTES, change: Change | None = None
) -> int:
    """Write the small files of a table again as few, with their rows changed by `change`, where there are more than
    `more_than` of them. Files of `below_bytes` and more are left alone. Gives the number of rows that are gone. Raises
    as ``rewrite`` and ``commit_rewrite``."""
    gone = 0
    for _ in range(_TIERS):
        snapshot = tables.snapshot(name)
        files = [] if snapshot is None else [file for file in snapshot.files() if file.size_bytes < below_bytes]
        for own in compaction_bins(files, more_than=more_than):
            assert snapshot is not None
            done = rewrite(snapshot, own, change)
            is_changed = done.rows != done.rows_before
            if commit_rewrite(tables, name, done, what="compact", changes_rows=is_changed):
                gone += done.rows_before - done.rows
    return gone


def commit_rewrite(
    tables: Tables,
    name: str,
    done: Rewrite,
    *,
    what: str,
    changes_rows: bool = False,
    numbers: Mapping[str, int] | None = None,
) -> bool:
    """Commit `done`; False: its files are not the table's any more, and it was dropped. `what` is kept in the commit.
    `changes_rows`: the new files have other rows than the old ones; else readers of changes take no notice of it.
    `numbers`: app transactions; ``DROPPED_ROWS`` is raised by the rows that are gone. Raises ConcurrentCommit (others
    kept committing)."""
    for attempt in range(_ATTEMPTS):
        snapshot = tables.snapshot(name)
        if snapshot is None or not _are_there(snapshot, done):
            if snapshot is not None:
                discard(snapshot.place, done)
            return False
        try:
            _commit_at(snapshot, done, what, changes_rows=changes_rows, numbers=numbers or {})
        except ConcurrentCommit:
            if changes_rows and is_append_only(name):
                tables.keep_rows(name, is_on=False)  # another maintenance ended its own change of rows
            time.sleep(_PAUSE_S * (1 + attempt % 5))
        else:
            return True
    raise kept_committing(name)


def _commit_at(
    snapshot: TableSnapshot, done: Rewrite, what: str, *, changes_rows: bool, numbers: Mapping[str, int]
) -> None:
    removed = [remove_action(file, data_change=changes_rows) for file in done.removed]
    for action in done.added:
        action.data_change = changes_rows

    def write(properties: CommitProperties) -> None:
        properties.max_commit_retries = 0  # delta-rs would try again where others removed the same files
        snapshot.delta.create_write_transaction(
            [*done.added, *removed],
            mode="append",
            schema=snapshot.delta.schema(),
            partition_by=[] if done.removed[0].chunk is None else [CHUNK],
            commit_properties=properties,
        )

    gone = done.rows_before - done.rows
    dropped = {DROPPED_ROWS: (snapshot.transaction_version(DROPPED_ROWS) or 0) + gone} if numbers and gone else {}
    commit(snapshot, write, {**numbers, **dropped}, {MAINTAINED: what, **_copied_commit(snapshot)})


def _copied_commit(snapshot: TableSnapshot) -> dict[str, str]:
    """What the newest commit of ``export_ranges`` knows of ``state_records`` stays known."""
    newest = snapshot.commits(after=snapshot.version - 1).get(snapshot.version, {})
    return {COPIED_COMMIT: newest[COPIED_COMMIT]} if COPIED_COMMIT in newest else {}


def _are_there(snapshot: TableSnapshot, done: Rewrite) -> bool:
    return {file.path for file in done.removed} <= snapshot.statistics(()).keys()
