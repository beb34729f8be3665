"""One commit to a Delta table: rows, positions (Delta app transactions) and metadata, all of it or nothing. A commit is
one file in the table's log, written only if no other writer wrote that version first. A commit whose response was lost
is found by its id."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from acktrail.errors import AcktrailError, ConcurrentCommit, ConfigurationError, OutcomeUnknown
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.storage_errors import needs_newer_release, storage_failure
from acktrail.tables.delta.table_layout import CHUNK, measured_columns, parquet_options
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import COMMIT_ID, PROPERTY_PREFIX, DataFile, TableSnapshot

_RETRIES: Final = 30
"""Retries when other writers commit in between without a conflict. If a commit landed but its response was lost, a
retry may repeat it. With app transactions the repeat is refused as a conflict; without them, the log names the same
files twice, and readers count them once."""
_HIGHEST_WRITER_VERSION: Final = 2
"""The highest version of Delta's writer protocol that has no feature beyond append-only tables."""
Write = Callable[[CommitProperties], None]
_LONGEST_TEXT: Final = 32
"""Characters of a text in the log's statistics."""
_BEYOND: Final = "\U0010ffff"
WRITTEN_FILES: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("table", "path", "stats")),
        *(pa.field(name, pa.int64()) for name in ("size", "modification_time", "rows")),
    ]
)
"""Columns of data files that are written and not yet committed: one row per file, `size` in bytes, `modification_time`
in ms since the epoch, `stats` as JSON of Delta's protocol."""


def check_expected(snapshot: TableSnapshot, expected: Mapping[str, int | None] | None) -> None:
    """Check that every app id has the `expected` number in the table (None: none yet). Raises ConcurrentCommit if one
    has another number."""
    for app_id, number in (expected or {}).items():
        found = snapshot.transaction_version(app_id)
        if found != number:
            raise _concurrent_commit(snapshot.name, {"app_id": app_id, "expected": number, "found": found})


def prepare_change(
    snapshot: TableSnapshot,
    added: Sequence[AddAction],
    removed: Sequence[RemoveAction] = (),
    *,
    mode: Literal["append", "overwrite"] = "append",
) -> Write:
    """Return the `write` argument of ``commit`` that adds and removes data files. Nothing is written before ``commit``
    calls it, and then only their names: the files of `added` must exist. The mode ``overwrite`` removes all others."""

    def write(properties: CommitProperties) -> None:
        if removed:  # delta-rs would try again where others removed the same files
            properties.max_commit_retries = 0
        snapshot.delta.create_write_transaction(
            [*added, *removed],
            mode,
            snapshot.delta.schema(),
            partition_by=snapshot.delta.metadata().partition_columns or None,
            commit_properties=properties,
        )

    return write


def check_plain(snapshot: TableSnapshot) -> None:
    """Check that the table takes any rows and has all its columns. Raises ConfigurationError if another engine set
    conditions on it (data files that are written here would not meet them), or if it lacks a column."""
    if snapshot.delta.protocol().min_writer_version > _HIGHEST_WRITER_VERSION:
        raise storage_failure(ValueError("unsupported table features"), snapshot.place.root.shown, snapshot.name)
    lacking = sorted({*TABLES[snapshot.name].names} - {field.name for field in snapshot.delta.schema().fields})
    if lacking:
        raise ConfigurationError(
            f"tables at {snapshot.place.root.shown}: table {snapshot.name} does not have "
            f"the columns {', '.join(lacking)}",
            hint="another release of acktrail made the table: use another root",
            data={"table": snapshot.name, "columns": lacking},
        )


def remove_action(file: DataFile, *, data_change: bool) -> RemoveAction:
    """Return the action that removes `file`. `data_change`: its rows are removed, too, not moved to another file."""
    return RemoveAction(
        path=file.path,
        size=file.size_bytes,
        data_change=data_change,
        deletion_timestamp=time.time_ns() // 1_000_000,
        partition_values={} if file.chunk is None else {CHUNK: file.chunk},
    )


def commit(snapshot: TableSnapshot, write: Write, transactions: Mapping[str, int], metadata: Mapping[str, str]) -> int:
    """Make one commit and return its version. `snapshot` has that version afterwards if the commit got its response.

    Raises:
        ConcurrentCommit: another writer committed first; nothing landed.
        OutcomeUnknown: it is not known whether the commit landed, or it landed and did not reach the disk.
        ConfigurationError, RetryableError: the storage refused or failed; nothing landed.
    """
    base, commit_id = snapshot.version, uuid.uuid4().hex
    properties = CommitProperties(
        custom_metadata={PROPERTY_PREFIX + key: text for key, text in {**metadata, COMMIT_ID: commit_id}.items()},
        max_commit_retries=_RETRIES,
        app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
    )
    version: int | None
    try:
        write(properties)
        if snapshot.version == base:  # a transaction of file actions leaves the object at its version
            snapshot.delta.update_incremental()
        version = snapshot.version
        if version > base + 1:  # others committed too: find our version by its id
            version = _find_commit(snapshot.place, base, commit_id)
    except (DeltaError, OSError) as error:
        # The response may be lost although the commit landed: writing it again would double its rows.
        version = _find_commit(snapshot.place, base, commit_id, error)
        if version is None:
            if isinstance(error, CommitFailedError) and not needs_newer_release(error):
                raise _concurrent_commit(snapshot.name, {}) from None
            raise snapshot.place.failure(error) from None
    if version is None:
        raise _outcome_unknown(snapshot.place, "CommitNotFound")
    try:
        snapshot.place.bring_to_disk(version)
    except OSError as error:
        raise OutcomeUnknown(
            f"tables at {snapshot.place.root.shown}: the commit to {snapshot.name} was written, but the disk did not "
            f"confirm it",
            hint="check the disk, then run again",
            data={"table": snapshot.name, "version": version, "failure": type(error).__name__},
        ) from None
    snapshot.remember()
    return version


def _find_commit(place: TablePlace, base: int, commit_id: str, failure: Exception | None = None) -> int | None:
    """Return the version after `base` that has the commit; None if it did not land. `failure`: why it is looked for."""
    try:
        commits = TableSnapshot(place, place.open()).commits(after=base)
    except (AcktrailError, DeltaError, OSError) as error:
        raise _outcome_unknown(place, type(failure or error).__name__) from None
    return next((version for version, own in commits.items() if own.get(COMMIT_ID) == commit_id), None)


def _outcome_unknown(place: TablePlace, failure: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"tables at {place.root.shown}: it is not known whether the commit to {place.name} landed",
        hint="run again: positions are read from the table, so no record is lost or doubled",
        data={"table": place.name, "failure": failure},
    )


def _concurrent_commit(name: str, data: Mapping[str, object]) -> ConcurrentCommit:
    return ConcurrentCommit(
        f"another writer committed to {name} first; nothing of this commit landed",
        hint="run only one exporter for these tables at a time, then run again",
        data={"table": name, **data},
    )


def write_data_file(
    place: TablePlace, rows: pa.Table, *, edges: Sequence[int] = (), modified_ms: int | None = None
) -> pa.Table:
    """Upload `rows`, in their order, as a new data file that no commit names yet. Return its row of ``WRITTEN_FILES``;
    no row if there are no `rows`. `edges`: numbers of rows that begin a new row group, also before it is full.
    `modified_ms`: the file's modification time in ms since the epoch; None: now. Raises OSError of the storage; then no
    file remains."""
    if not rows.num_rows:
        return WRITTEN_FILES.empty_table()
    options = parquet_options(place.name)
    group = options.pop("row_group_size")
    path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        for begin, end in pairwise((0, *edges, rows.num_rows)):
            writer.write_table(rows.slice(begin, end - begin), row_group_size=group)
    content = sink.getvalue()
    place.put_file(path, content)
    own = {
        "table": place.name,
        "path": path,
        "stats": _statistics(rows, measured_columns(place.name, rows.schema)),
        "size": content.size,
        "modification_time": modified_ms or time.time_ns() // 1_000_000,
        "rows": rows.num_rows,
    }
    return pa.Table.from_pylist([own], schema=WRITTEN_FILES)


def add_actions(files: pa.Table, chunk: int | str | None = None) -> list[AddAction]:
    """Return the actions that add `files` (rows of ``WRITTEN_FILES``) to their table, or to a chunk of it."""
    columns = files.select(["path", "stats", "size", "modification_time"]).to_pylist()
    values = {} if chunk is None else {CHUNK: str(chunk)}
    return [AddAction(**each, partition_values=values, data_change=True) for each in columns]


def _statistics(rows: pa.Table, columns: Iterable[str]) -> str:
    """Counts and bounds of `rows`, as Delta's protocol has them."""
    nulls, least, greatest = dict[str, int](), dict[str, Any](), dict[str, Any]()
    for name in columns:
        column = rows[name]
        nulls[name] = column.null_count
        if pa.types.is_dictionary(column.type):
            column = column.unique().dictionary_decode()
        if _has_bounds(column.type) and column.null_count < len(column):
            found = pc.min_max(column)
            least[name], greatest[name] = _lower_bound(found["min"].as_py()), _upper_bound(found["max"].as_py())
    content = {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    # Without escapes: delta-rs reads those of characters beyond U+FFFF as other characters.
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, default="{:%Y-%m-%dT%H:%M:%S.%fZ}".format)


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether the log has bounds for columns of this type: only types whose values have exactly one form as text."""
    is_instant = pa.types.is_timestamp(kind) and kind.tz is not None
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or is_instant)


def _lower_bound(value: Any) -> Any:
    """Return `value`, or for a long text a short one that is not greater."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper_bound(value: Any) -> Any:
    """Return `value`, or for a long text a short one that is not less, if there is one."""
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT or value[_LONGEST_TEXT] == _BEYOND:
        return value
    return value[:_LONGEST_TEXT] + _BEYOND
