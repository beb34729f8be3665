"""``DeltaTableSource``: reads the commits of one Delta table from its log, one after the other, and gives the rows that
each brought."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from threading import Event
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from acktrail.errors import ConfigurationError, DamagedTables, InputError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.tables.connector_tables import schema_of
from acktrail.tables.delta.table_place import Damage, TablePlace, damaged_table
from acktrail.tables.delta.table_root import table_root
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.text_parsing import parse_json
from acktrail_connect.address_keys import TABLES_KEYS, tables_config
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

_LOOK_BACK_S: Final = 30.0
"""How often an idle task looks whether the commit that it waits for came and went."""
_CLEANED: Final = "a cleanup of the table's log removed it"
_RESTART: Final = "move the connector's position to a version that is there, or read the table with start=end"
_KIND: Final = "delta/"
_MS: Final = 1_000
SOURCE_KEYS: Final = TABLES_KEYS.with_keys(keys_in(__package__, "table_keys.toml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """The next row to read: the id of its table (None: any), the version that added it, the number of its file among
    those of the version, its number in the file."""

    table_id: str | None = None
    version: int = 0
    file: int = 0
    row: int = 0

    @classmethod
    def of(cls, position: Position | None) -> TablePosition:
        """From JSON; None: the beginning. Raises InputError when it is no such position."""
        if position is None:
            return cls()
        names = {each.name for each in fields(cls)}
        if isinstance(position, Mapping) and set(position) == names:
            table_id, numbers = position["table_id"], [position[name] for name in names - {"table_id"}]
            if isinstance(table_id, str | None) and all(type(each) is int and each >= 0 for each in numbers):
                return cls(**position)
        raise InputError(
            f"{position!r} is not a position in a table",
            hint='for example {"table_id": null, "version": 12, "file": 0, "row": 0}: the next row to read',
        )


class TableTask(SourceTask):
    """Follows one table. Raises (``start`` and ``poll``) DamagedTables where a version or a file of it is gone,
    ConfigurationError where the table is another one or rows were changed in place, and what the storage raises."""

    def __init__(self, place: TablePlace, source_partition: SourcePartition, config: Config) -> None:
        """`config`: see the keys of ``DeltaTableSource``."""
        self._place, self._source_partition, self._config = place, source_partition, config
        self._at = TablePosition()
        self._schema = pa.schema([])
        self._is_there = False
        self._end: int | None = None
        self._looked_forward_at = self._looked_back_at = float("-inf")
        self._stop = Event()
        self._batches: Iterator[SourceBatch | None] = iter(())

    def start(self, context: SourceTaskContext) -> None:
        self._stop = context.stop
        position = context.position(self._source_partition)
        self._at = TablePosition.of(position)
        newest = self._look_back(must_be_there=position is not None and self._at.version > 0)
        self._end = newest + 1 if self._config["bounded"] else None
        self._batches = self._follow(moves_to=newest + 1 if position is None and self._from_end else None)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        batch = next(self._batches, None)
        if batch is not None:
            return [batch]
        if not self.is_finished:
            self._stop.wait(timeout_s)
        return []

    def stop(self) -> None:
        self._batches = iter(())

    @property
    def is_finished(self) -> bool:
        return self._end is not None and self._at.version >= self._end

    @property
    def partitions(self) -> tuple[int, int]:
        return (int(self.is_finished), 1)

    def _follow(self, *, moves_to: int | None) -> Iterator[SourceBatch | None]:
        """Batches without end; None: there is nothing now."""
        if moves_to is not None:  # at once: a restart before the first row must not move the end
            yield self._moved(version=moves_to)
        while not self.is_finished:
            commit = self._next_commit()
            if commit is None:
                yield None
            else:
                yield from self._batches_of(commit)

    def _next_commit(self) -> TableCommit | None:
        now = time.monotonic()
        if now - self._looked_forward_at < self._config["interval.ms"] / _MS:
            return None
        commit = read_commit(self._place, self._at.version)
        if commit is None:
            self._looked_forward_at = now
            if now - self._looked_back_at >= _LOOK_BACK_S:
                self._look_back(must_be_there=self._is_there)
            return None
        if not self._is_there or commit.changes_schema:
            self._look_back(must_be_there=True)
        return commit

    def _look_back(self, *, must_be_there: bool) -> int:
        """The newest version, -1 where there is no table yet. Learns the columns, and checks that the table is the one
        of the position and still has the version to read next."""
        place, at = self._place, self._at
        with place.translated():
            try:
                snapshot = TableSnapshot(place, place.open())
            except TableNotFoundError:
                if must_be_there:
                    raise gone(place, "the table", "its log is empty or was removed") from None
                return -1
        self._check(snapshot)
        # Only after the newest version is known: a commit may come between the two looks.
        if at.version <= snapshot.version and not self._skips and not snapshot.has_log_file(at.version):
            raise gone(place, f"version {at.version}", _CLEANED)
        self._schema, self._is_there, self._looked_back_at = schema_of(snapshot), True, time.monotonic()
        self._at = replace(at, table_id=snapshot.table_id)
        return snapshot.version

    @property
    def _from_end(self) -> bool:
        return bool(self._config["start"] == "end")

    @property
    def _skips(self) -> bool:
        """The first start begins at the end: what is before is not read."""
        return self._from_end and self._at == TablePosition()

    def _check(self, snapshot: TableSnapshot) -> None:
        at, name = self._at, snapshot.name
        if at.table_id not in {None, snapshot.table_id} or at.version > snapshot.version + 1:
            raise ConfigurationError(
                f"the table {name} is not the table that was read before, or it was restored to an older version",
                hint="to read the new table, remove the position of the connector or use another connector name",
                data={"table": name, "table_id": at.table_id, "version": at.version, "newest": snapshot.version},
            )
        if snapshot.delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise ConfigurationError(f"the table {name} uses column mapping, which this source does not support")

    def _batches_of(self, commit: TableCommit) -> Iterator[SourceBatch]:
        place = self._place
        if commit.removed and self._config["updates"] != "rewritten":
            raise ConfigurationError(
                f"version {commit.version} of the table {place.name} removed or changed rows",
                hint="with updates=rewritten the source reads all rows of the rewritten files, including unchanged "
                "rows; or move the position to the next version",
                data={"table": place.name, "version": commit.version, "files": commit.removed},
            )
        for number in range(self._at.file, len(commit.added)):
            row = self._at.row
            most = self._config["batch.rows"]
            for rows in file_rows(place, commit.added[number], self._schema, first=row, rows=most):
                row += rows.num_rows
                yield self._moved(rows, version=commit.version, file=number, row=row)
            self._at = TablePosition(table_id=self._at.table_id, version=commit.version, file=number + 1)
        yield self._moved(version=commit.version + 1)

    def _moved(self, rows: pa.Table | None = None, **place: Any) -> SourceBatch:
        self._at = TablePosition(table_id=self._at.table_id, **place)
        return SourceBatch(
            source_partition=self._source_partition,
            rows={} if rows is None else {self._place.name: rows},
            position=asdict(self._at),
        )


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
        actions = [parse_json(line) for line in content.splitlines()]
    except ValueError:
        raise damaged_table(place.root.shown, place.name, Damage(file=file, cause="is not JSON")) from None
    adds = [action["add"] for action in actions if _changes_rows(action.get("add"))]
    if any(add.get("deletionVector") for add in adds):
        raise ConfigurationError(
            f"table {place.name}, version {version}: rows were deleted by deletion vectors, which this source does "
            f"not support",
            hint="set delta.enableDeletionVectors=false on the table, and move the position past this version",
            data={"table": place.name, "version": version},
        )
    place.ensure_inside(add["path"] for add in adds)
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
            ends = [*accumulate(opened.metadata.row_group(n).num_rows for n in range(opened.num_row_groups))]
            read = bisect_right(ends, first)  # row groups whose rows all come before
            first -= ends[read - 1] if read else 0
            for batch in opened.iter_batches(batch_size=rows, row_groups=range(read, len(ends))):
                skipped = min(first, batch.num_rows)
                first -= skipped
                if skipped < batch.num_rows:
                    yield _shaped(pa.Table.from_batches([batch.slice(skipped)]), schema, file)


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
    for own in schema:
        text = file.partition_values.get(own.name)
        if own.name in rows.column_names:
            columns[own.name] = rows[own.name].cast(own.type)
        elif text:
            columns[own.name] = pa.repeat(pa.scalar(text).cast(own.type), rows.num_rows)
        else:
            columns[own.name] = pa.nulls(rows.num_rows, own.type)
    others = {name: rows[name] for name in rows.column_names if name not in columns}
    return pa.table({**columns, **others})


class DeltaTableSource(SourceConnector):
    """Gives the rows of a Delta table as they are appended, in the order of its commits."""

    description = "Rows of one Delta table as they are appended, in commit order."
    config_def: ClassVar[ConfigDef] = SOURCE_KEYS

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._root = table_root(tables_config(config))

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # commits have one order
        return [{}]

    def task(self, config: Config) -> TableTask:  # noqa: ARG002  # there is one
        place = TablePlace(name=self.config["table"], root=self._root)
        return TableTask(place, self._source_partition, self.config)

    def source_partitions(self) -> Sequence[SourcePartition]:
        return [self._source_partition]

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """The table's name."""
        return {"table": source_partition.removeprefix(_KIND)}

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if dict(fields) != {"table": self.config["table"]}:
            raise InputError(
                f"the source partition of this connector is the object {{'table': {self.config['table']!r}}}"
            )
        return self._source_partition

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:  # noqa: ARG002  # there is one
        TablePosition.of(position)

    @property
    def _source_partition(self) -> SourcePartition:
        return SourcePartition(_KIND + self.config["table"])
