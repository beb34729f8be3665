"""What one commit of a Delta table brought, from the table's own log: files with new rows, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from acktrail.errors import ConfigurationError, DamagedTables
from acktrail.tables.delta.damaged_files import Damage
from acktrail.tables.delta.storage_errors import damaged_table
from acktrail.tables.delta.table_place import TablePlace

_RESTART: Final = "move the connector's position to a version that is there, or read the table with start=end"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file with new rows; `path` is relative to the table, `partition_values` are the log's texts by column."""

    path: str
    partition_values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The commit `version`: files whose rows are new to readers, and how many files' rows it took away. Files that a
    compaction wrote or removed are in neither."""

    version: int
    added: tuple[AddedFile, ...]
    removed: int
    changes_schema: bool


def read_commit(place: TablePlace, version: int) -> TableCommit | None:
    """A version's commit; None: its log file is not there (not yet, or not any more). Raises DamagedTables: it is no
    JSON; ConfigurationError: rows are marked as deleted inside a file; and what the storage raises."""
    file = f"_delta_log/{version:020d}.json"
    with place.translated():
        if not place.has(file):
            return None
        with place.storage().open_input_stream(file) as stream:
            content = bytes(stream.read())
    try:
        actions = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        raise damaged_table(place.root.shown, place.name, Damage(file=file, cause="is no JSON")) from None
    adds = [action["add"] for action in actions if _changes_rows(action.get("add"))]
    if any(add.get("deletionVector") for add in adds):
        raise ConfigurationError(
            f"table {place.name}, version {version}: rows were deleted by deletion vectors, which cannot be followed",
            hint="set delta.enableDeletionVectors=false on the table, and move the position past this version",
            data={"table": place.name, "version": version},
        )
    return TableCommit(
        version=version,
        added=tuple(
            AddedFile(path=unquote(add["path"]), partition_values=add.get("partitionValues") or {}) for add in adds
        ),
        removed=sum(_changes_rows(action.get("remove")) for action in actions),
        changes_schema=any("metaData" in action for action in actions),
    )


def _changes_rows(action: Mapping[str, Any] | None) -> bool:
    return action is not None and bool(action.get("dataChange", True))


def file_rows(place: TablePlace, file: AddedFile, schema: pa.Schema, *, first: int, rows: int) -> Iterator[pa.Table]:
    """The rows of a file from number `first` on, at most `rows` at a time, in their order. Memory holds one row group.
    Columns are those of `schema`, null where the file lacks one, and then others that the file has. Raises
    DamagedTables when the file is gone, and what the storage raises."""
    with place.translated():
        try:
            opened = pq.ParquetFile(place.storage().open_input_file(file.path))
        except FileNotFoundError:
            raise gone(place, f"the file {file.path}", "a vacuum removed it after its rows were compacted") from None
        with opened:
            passed = 0
            for group in range(opened.num_row_groups):
                count = opened.metadata.row_group(group).num_rows
                if passed + count > first:
                    for batch in opened.iter_batches(batch_size=rows, row_groups=[group]):
                        skipped = min(max(0, first - passed), batch.num_rows)
                        passed += batch.num_rows
                        if skipped < batch.num_rows:
                            yield _shaped(pa.Table.from_batches([batch.slice(skipped)]), schema, file)
                else:
                    passed += count


def gone(place: TablePlace, what: str, why: str) -> DamagedTables:
    """The error for a part of the table's past that is not there any more."""
    return DamagedTables(
        f"tables at {place.root.shown}: table {place.name}: {what} is not there any more: {why}",
        hint=_RESTART,
        table=place.name,
        data={"root": place.root.shown},
    )


def _shaped(rows: pa.Table, schema: pa.Schema, file: AddedFile) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for field in schema:
        text = file.partition_values.get(field.name)
        if field.name in rows.column_names:
            columns[field.name] = rows[field.name].cast(field.type)
        elif text:
            columns[field.name] = pa.repeat(pa.scalar(text).cast(field.type), rows.num_rows)
        else:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
    others = {name: rows[name] for name in rows.column_names if name not in columns}
    return pa.table({**columns, **others})
