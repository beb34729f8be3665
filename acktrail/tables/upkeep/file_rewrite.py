"""Data files written again, as few or without old rows, and the one commit that puts them in the place of others.

Small files become files of at most ``MOST_ROWS`` rows, the oldest first. One that is not small is not compacted again:
a maintenance writes what came since the last one, and at most one older file.

Commits by others in between win: this one looks again whether its files are still those of the table, and is dropped
where they are not. Nothing is lost, nothing doubled.

delta-rs's own OPTIMIZE was tried (``compact`` and ``z_order`` of 1.6.6, 60 files of ``state_records``). It keeps rows,
app transactions and statistics, in the same time and memory. It lacks three things. Of two that run at once both land,
and every row occurs twice. Rows lie in the order of files by size, and a new file is as old as its commit, so that
readers no longer find records in the order of the log. A file is 2.3 times as large as one that this package writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.transaction import AddAction

from acktrail.errors import ConcurrentCommit, DamagedTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.connector_tables import schema_of
from acktrail.tables.delta.delta_log_writer import add_actions, commit, prepare_change, remove_action, write_data_file
from acktrail.tables.delta.store import Tables, kept_committing
from acktrail.tables.delta.table_layout import CHUNK, is_append_only
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot, opened
from acktrail.tables.records.export_ranges import COPIED_COMMIT
from acktrail.tables.records.record_files import DROPPED_ROWS, RECORDS

SMALL_ROWS: Final = 262_144
"""A file with fewer rows is small, unless it has ``FULL_BYTES``."""
MOST_ROWS: Final = 2 * SMALL_ROWS
"""Rows of the files that become one: they are held in memory at once."""
FULL_BYTES: Final = 32 << 20
MOST_BYTES: Final = 64 << 20
"""Compressed bytes of the files that become one."""
MOST_FILES: Final = 4_096
"""Files that one commit replaces."""
LEAST_GROUP: Final = 8_192
"""A row group ends with a state partition where it has this number of rows."""
MAINTAINED: Final = "maintained"
"""The metadata of a commit of the maintenance: what it did."""
_LOOKED_UP_BY: Final = [("state_partition", "ascending"), ("offset", "ascending")]
_AT_ONCE: Final = 65_536
_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.05
Change = Callable[[pa.Table], pa.Table]
"""What becomes of the rows of some files."""


@dataclass(slots=True, kw_only=True)
class Rewrite:
    """What the files `removed` of a table become: `added`, with `rows` of the `rows_before` that they had."""

    removed: tuple[DataFile, ...]
    added: list[AddAction] = field(default_factory=list)
    rows_before: int = 0
    rows: int = 0


def compaction_bins(files: Iterable[DataFile], *, more_than: int) -> list[tuple[DataFile, ...]]:
    """Groups of small files, oldest first, each to be written again as one; none where a table has at most `more_than`
    small files."""
    small = [file for file in files if (file.rows or 0) < SMALL_ROWS and file.size_bytes < FULL_BYTES]
    small.sort(key=lambda file: (file.modified_ms, file.path))
    return [own for own in file_bins(small) if len(own) > 1] if len(small) > more_than else []


def file_bins(files: Iterable[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """`files` in their order, cut where rows, bytes or files of a group would be too many."""
    own: list[DataFile] = []
    rows = size = 0
    for file in files:
        rows, size = rows + (file.rows or 0), size + file.size_bytes
        if own and (rows > MOST_ROWS or size > MOST_BYTES or len(own) >= MOST_FILES):
            yield tuple(own)
            own, rows, size = [], file.rows or 0, file.size_bytes
        own.append(file)
    if own:
        yield tuple(own)


def compact_files(
    tables: Tables, name: str, *, more_than: int, below_bytes: int = FULL_BYTES, change: Change | None = None
) -> int:
    """Write the small files of a table again as few, with their rows changed by `change`, where there are more than
    `more_than` of them. Files of `below_bytes` and more are left alone. Gives the number of rows that are gone. Raises
    as ``rewrite`` and ``commit_rewrite``."""
    gone, snapshot = 0, tables.snapshot(name)
    if snapshot is None:
        return 0
    files = [file for file in snapshot.files() if file.size_bytes < below_bytes]
    bins = compaction_bins(files, more_than=more_than)
    with tables.rewritable(name) if bins and change else nullcontext():
        for own in bins:
            done = rewrite(snapshot, own, change)
            is_changed = done.rows != done.rows_before
            if commit_rewrite(tables, name, done, what="compact", changes_rows=is_changed):
                gone += done.rows_before - done.rows
    return gone


def rewrite(snapshot: TableSnapshot, files: Sequence[DataFile], change: Change | None = None) -> Rewrite:
    """Write the rows of `files`, changed by `change`, as a new file: it is as old as the rows, and no part of the table
    before it is committed. State records lie in the order of lookups, other rows in that of their writing. `files` have
    the same chunk. Raises DamagedTables (the files do not have the rows that the log lists)."""
    with snapshot.place.translated():
        schema = file_schema(snapshot)
        rows = pa.Table.from_batches(scanned(snapshot, files, schema.names), schema=schema)
        _check_count(snapshot, files, rows.num_rows)
        if snapshot.name == RECORDS:
            rows = rows.sort_by(_LOOKED_UP_BY)
        kept = (rows if change is None else change(rows)).combine_chunks()
        edges = _lookup_edges(kept) if snapshot.name == RECORDS else ()
        modified_ms = max(file.modified_ms for file in files)
        added = add_actions(write_data_file(snapshot.place, kept, edges=edges, modified_ms=modified_ms), files[0].chunk)
    return Rewrite(removed=tuple(files), added=added, rows_before=rows.num_rows, rows=kept.num_rows)


def _lookup_edges(rows: pa.Table) -> list[int]:
    """Where row groups of ordered state records begin: with a state partition, unless that makes them small. The bounds
    of a group with one state partition leave out most offsets."""
    numbers = rows["state_partition"].to_numpy()
    edges = [0]
    for head in (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist():
        if head - edges[-1] >= LEAST_GROUP:
            edges.append(head)
    return edges[1:]


def scanned(
    snapshot: TableSnapshot, files: Sequence[DataFile], columns: Sequence[str], where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of `files`, file by file and batch by batch; row groups that `where` rules out are not read."""
    schema = file_schema(snapshot)
    for file in files:
        dataset = ds.dataset([file.path], schema=schema, format="parquet", filesystem=snapshot.place.storage())
        yield from dataset.scanner(
            columns=list(columns), filter=where, batch_size=_AT_ONCE, batch_readahead=1
        ).to_batches()


def file_schema(snapshot: TableSnapshot) -> pa.Schema:
    """The columns that the files of a table have: in acktrail's types, or as they are stored where the table is a
    connector's own."""
    if snapshot.name not in TABLES:
        return schema_of(snapshot)
    return pa.schema([own for own in TABLES[snapshot.name] if own.name != CHUNK])


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
        snapshot = opened(tables.place(name))  # its own: a version that other threads read is moved on by them
        if snapshot is None or not {file.path for file in done.removed} <= snapshot.statistics(()).keys():
            if snapshot is not None:
                _discard(snapshot.place, done)
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


def _check_count(snapshot: TableSnapshot, files: Sequence[DataFile], rows: int) -> None:
    known = [file.rows for file in files]
    if None not in known and rows != sum(each or 0 for each in known):
        raise DamagedTables(
            f"tables at {snapshot.place.root.shown}: table {snapshot.name}: the files do not have the rows that the "
            f"log lists",
            hint="`acktrail tables repair` shows what is wrong",
            table=snapshot.name,
        )


def _discard(place: TablePlace, done: Rewrite) -> None:
    """Remove files that will not be committed."""
    storage = place.storage()
    for action in done.added:
        storage.delete_file(action.path)


def _commit_at(
    snapshot: TableSnapshot, done: Rewrite, what: str, *, changes_rows: bool, numbers: Mapping[str, int]
) -> None:
    removed = [remove_action(file, data_change=changes_rows) for file in done.removed]
    for action in done.added:
        action.data_change = changes_rows
    gone = done.rows_before - done.rows
    dropped = {DROPPED_ROWS: (snapshot.transaction_version(DROPPED_ROWS) or 0) + gone} if numbers and gone else {}
    commit(
        snapshot,
        prepare_change(snapshot, done.added, removed),
        {**numbers, **dropped},
        {MAINTAINED: what, **_copied_commit(snapshot)},
    )


def _copied_commit(snapshot: TableSnapshot) -> dict[str, str]:
    """What the newest commit of ``export_ranges`` knows of ``state_records`` stays known."""
    newest = snapshot.commits(after=snapshot.version - 1).get(snapshot.version, {})
    return {COPIED_COMMIT: newest[COPIED_COMMIT]} if COPIED_COMMIT in newest else {}
