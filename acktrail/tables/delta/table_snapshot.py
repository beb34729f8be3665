"""One table at one version."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from acktrail.format.columns.schemas.table_comments import commented
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.bucket import ensure_conditional_put
from acktrail.tables.delta.table_layout import CHUNK, cast_to_schema, creation
from acktrail.tables.delta.table_place import Damage, TablePlace, damaged_table, data_damage, file_sizes
from acktrail.text_parsing import parse_json

PROPERTY_PREFIX: Final = "acktrail."
"""Names of acktrail's own table properties and commit metadata start with it in the storage, never outside it."""
COMMIT_ID: Final = "commit_id"
"""The metadata that identifies a commit."""
_FEW_NUMBERS: Final = 16
"""Numbers of app transactions that are asked for one by one."""
_UPKEEP: Final = (b'"operation":"VACUUM', b'"operation":"SET TBLPROPERTIES"')
"""The operation of a commit without any file where it has nothing to do with rows."""
_RETENTION: Final = b'"acktrail.maintained":"retention"'
"""What a commit has that only drops rows which are not kept."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of a table: its path relative to the table, compressed size, rows (None: not in the log), when
    it was written (ms since the epoch), and the value of its partition column as text (None: the table has none)."""

    path: str
    size_bytes: int
    rows: int | None
    modified_ms: int
    chunk: str | None = None


class TableSnapshot:
    """A table as it was at `version`; later commits do not show. All methods raise ConfigurationError or RetryableError
    where a file cannot be read."""

    def __init__(self, place: TablePlace, delta: DeltaTable) -> None:
        self.name, self.place, self.delta = place.name, place, delta
        self._newest: tuple[object, ...] | None = None
        self._asked = (-1, 0)
        self._numbers: dict[str, int] | None = None
        self._checked = -1
        if place.root.is_local:
            self.remember()

    @property
    def version(self) -> int:
        """Number of the newest commit seen; the first one is 0."""
        return int(self.delta.version())

    @property
    def is_local(self) -> bool:
        """It lies in a folder of this machine."""
        return self.place.root.is_local

    @property
    def table_id(self) -> str:
        """The id that a table created again in its place does not have."""
        return str(self.delta.metadata().id)

    @property
    def newest_commit(self) -> tuple[str, int, bytes]:
        """Identifies the newest commit seen: the table's id, its version, and what its log file says. A table that was
        restored from an older copy and written on repeats the first two."""
        with self.place.translated():
            return self.table_id, self.version, self._log_of(self.version)

    @property
    def properties(self) -> dict[str, str]:
        """acktrail's own properties of the table."""
        return _own(self.delta.metadata().configuration)

    def transaction_version(self, app_id: str) -> int | None:
        """The number committed last under `app_id`; None when there is none. delta-rs searches its log for each one: in
        a folder, where many are asked for, one reading takes milliseconds less for each."""
        with self.place.translated():  # the first of these numbers is read from the log
            if self._asked[0] != self.version:
                self._asked, self._numbers = (self.version, 0), None
            self._asked = self.version, self._asked[1] + 1
            if self._asked[1] == _FEW_NUMBERS and self.is_local:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # delta-rs says what is wrong with the log
                    self._numbers = self._all_numbers()
            number = self.delta.transaction_version(app_id) if self._numbers is None else self._numbers.get(app_id)
        return None if number is None else int(number)

    def _all_numbers(self) -> dict[str, int] | None:
        """By app id, of the newest checkpoint and the commits after it; None: the log has another form."""
        first, numbers, storage = 0, dict[str, int](), self.place.storage()
        if self.place.has("_delta_log/_last_checkpoint"):
            with storage.open_input_stream("_delta_log/_last_checkpoint") as stream:
                first = int(parse_json(stream.read())["version"]) + 1
            file = f"_delta_log/{first - 1:020d}.checkpoint.parquet"
            if first > self.version + 1 or not self.place.has(file):
                return None
            with storage.open_input_file(file) as source:
                found = pq.read_table(source, columns=["txn"])["txn"].combine_chunks().drop_null()
            names, versions = (found.field(name).to_pylist() for name in ("appId", "version"))
            numbers = dict(zip(names, versions, strict=True))
        for version in range(first, self.version + 1):
            lines = self._log_of(version).split(b"\n")
            if lines == [b""]:
                return None
            actions = (parse_json(line)["txn"] for line in lines if line.startswith(b'{"txn"'))
            numbers |= {action["appId"]: action["version"] for action in actions}
        return numbers

    def remember(self) -> None:
        """Note what the file of the newest commit looks like: the caller has just read or written it."""
        with contextlib.suppress(DeltaError, OSError):
            self._newest = self._end_of_log()

    def refresh(self) -> bool:
        """Become the newest version, reading only what was committed since; whether that was possible. It is not where
        the newest commit seen is not in the log any more: an older copy of the table was put in its place, and a commit
        after the one that is gone would leave a hole in the log. Nor before the first commit to object storage.
        delta-rs, which would list the log, is asked only where a commit follows."""
        try:
            if self._newest is None or self._newest != self._end_of_log():
                return False
            if self.place.has(f"_delta_log/{self.version + 1:020d}.json"):
                self.delta.update_incremental()
                self.remember()
        except (DeltaError, OSError):
            return False
        return True

    def is_newest(self) -> bool:
        """Whether the log, in a folder of this machine, ends as it did with the newest commit seen."""
        with contextlib.suppress(DeltaError, OSError):
            if self.is_local and self._newest == self._end_of_log():
                return not self.place.has(f"_delta_log/{self.version + 1:020d}.json")
        return False

    def _end_of_log(self) -> tuple[object, ...]:
        """The file of the newest commit seen and, in a folder of this machine, the time of the newest checkpoint: what
        lies before one may be removed from the log at any time, and delta-rs reads some of it late."""
        if not self.is_local:
            return self._newest_file()
        checkpoint = self.place.storage().get_file_info("_delta_log/_last_checkpoint")
        return *self._newest_file(), checkpoint.mtime_ns

    def _newest_file(self) -> tuple[int, int | None, int | None]:
        """Version, size in bytes and time of the newest commit seen, as the storage has its file."""
        version = self.version
        info = self.place.storage().get_file_info(f"_delta_log/{version:020d}.json")
        return version, info.size, info.mtime_ns

    def commits(self, *, after: int) -> dict[int, dict[str, str]]:
        """The metadata of the commits later than version `after` and up to this snapshot's, by version, oldest first;
        those whose log file is gone or has no ``commitInfo`` are left out. Reads one log file for each. Not
        `DeltaTable.history`, which numbers the commits back from this version although it begins with those that other
        writers made since."""
        with self.place.translated():
            found = ((each, self._commit_info(each)) for each in range(max(after + 1, 0), self.version + 1))
            return {version: _own(info) for version, info in found if info}

    @property
    def last_change(self) -> int:
        """The newest version that is more than the same rows in other files (a compaction, a vacuum), or without some
        that are not kept (a retention). Reads the log file of each later one; one that is gone counts as a change."""
        with self.place.translated():
            versions = range(self.version, 0, -1)
            return next((each for each in versions if not self._brings_no_rows(each)), 0)

    def _brings_no_rows(self, version: int) -> bool:
        content = self._log_of(version)
        if _RETENTION in content:
            return True
        if b'"dataChange":' in content:
            return b'"dataChange":true' not in content
        return any(operation in content for operation in _UPKEEP)

    def _commit_info(self, version: int) -> dict[str, Any]:
        """The ``commitInfo`` of a commit's log file; empty: the file is gone, or has none. OSError: it is no JSON."""
        lines = [line for line in self._log_of(version).split(b"\n") if b'"commitInfo"' in line]
        try:
            actions = [parse_json(line) for line in lines]
        except ValueError as error:
            raise OSError(f"the log of version {version} is not JSON") from error
        return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})

    def _log_of(self, version: int) -> bytes:
        """A commit's log file; empty: it is gone."""
        file = f"_delta_log/{version:020d}.json"
        if not self.place.has(file):
            return b""
        with self.place.storage().open_input_stream(file) as stream:
            return bytes(stream.read())

    def has_log_file(self, version: int) -> bool:
        """Whether the log file of a commit is there, readable or not."""
        with self.place.translated():
            return self.place.has(f"_delta_log/{version:020d}.json")

    def files(self) -> tuple[DataFile, ...]:
        """The files that make up the table: what a worker in another process reads on its own."""
        actions, chunked = self._actions(), f"partition.{CHUNK}"
        none = pa.nulls(actions.num_rows, pa.string())
        chunks = actions[chunked].cast(pa.string()) if chunked in actions.column_names else none
        times = actions["modification_time"].cast(pa.int64())
        columns = (*(actions[name] for name in ("path", "size_bytes", "num_records")), times, chunks)
        rows = pa.table(columns, names=list(DataFile.__slots__))
        return tuple(DataFile(**row) for row in rows.to_pylist())

    def statistics(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The log's statistics of each file, by its path: ``min.COLUMN`` and ``max.COLUMN``; None: not in the log."""
        actions = self._actions()
        rows = actions.select(["path", *(name for name in names if name in actions.column_names)]).to_pylist()
        return {each["path"]: {name: each.get(name) for name in names} for each in rows}

    def paths_with(self, equal: Mapping[str, Any]) -> list[str]:
        """The files that may have rows whose columns have the values of `equal`, by only the log's statistics: a
        ``dataset`` of all files costs ms for each."""
        rows = self._actions()
        for name, value in equal.items():
            for kind, may in (("null_count", pc.not_equal), ("min", pc.less_equal), ("max", pc.greater_equal)):
                if f"{kind}.{name}" in rows.column_names:
                    limit = rows["num_records"] if kind == "null_count" else value
                    rows = rows.filter(pc.fill_null(may(rows[f"{kind}.{name}"], limit), fill_value=True))
        return rows["path"].to_pylist()

    def missing(self) -> tuple[Damage, ...]:
        """Files that make up the table and are not there, or have another size than the log says. Lists the table's
        files once."""
        sizes = file_sizes(self._actions())
        with self.place.translated():
            return tuple(data_damage(self.place.storage(), sizes))

    def dataset(self) -> ds.Dataset:
        """The table for pyarrow's scanners; files that cannot hold a filter's values are left out by their statistics.
        Columns have the storage's types: read through ``read`` or ``batches`` for the schema's."""
        if self._checked != self.version:
            self._actions()
        with self.place.translated():
            return self.delta.to_pyarrow_dataset(filesystem=self.place.storage() if self.is_local else None)

    def read(self, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows that satisfy `where`, in the columns and types of the table's schema, in no order.

        `where` compares with values (``pc.field("group_id") == group_id``), which are never parsed. Files whose
        text is stored as views (merges and other engines write them) are filtered once they are read: Arrow cannot
        compare views inside a file.
        """
        schema = chosen_columns(self.name, columns)
        with self.place.translated():
            try:
                return cast_to_schema(self.dataset().to_table(columns=schema.names, filter=where), schema)
            except pa.ArrowNotImplementedError:
                return pa.Table.from_batches(self._sieved(schema, where), schema)

    def rows(
        self,
        equal: Mapping[str, object] = _NOTHING,
        *,
        least: Mapping[str, int] = _NOTHING,
        columns: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The rows whose columns have the values of `equal` (a list: one of them), and at least those of `least`, in no
        order, for callers that know nothing of Arrow. Values are compared, never parsed. Files that cannot hold such
        rows, by their statistics, are not read."""
        equals = (one_of(name, value if isinstance(value, list) else [value]) for name, value in equal.items())
        where = all_of(*equals, *(pc.field(column) >= value for column, value in least.items()))
        return self.read(columns=columns, where=where).to_pylist()

    def batches(
        self, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ``read`` batch by batch: memory does not grow with the table."""
        schema = chosen_columns(self.name, columns)
        scanner = self.dataset().scanner(columns=schema.names, filter=where)
        passed = 0
        try:
            for batch in self._read_from(scanner):
                passed += batch.num_rows
                yield from cast_to_schema(pa.Table.from_batches([batch]), schema).to_batches()
        except pa.ArrowNotImplementedError:
            for batch in self._sieved(schema, where):
                if passed < batch.num_rows:
                    yield batch.slice(passed)
                passed = max(0, passed - batch.num_rows)

    def _sieved(self, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The same rows in the same order, read batch by batch and then filtered."""
        whole = TABLES[self.name]
        for batch in self._read_from(self.dataset().scanner(columns=whole.names)):
            rows = cast_to_schema(pa.Table.from_batches([batch]), whole)
            yield from (rows if where is None else rows.filter(where)).select(schema.names).to_batches()

    def _read_from(self, scanner: ds.Scanner) -> Iterator[pa.RecordBatch]:
        with self.place.translated():
            yield from scanner.to_batches()

    def _actions(self) -> pa.Table:
        """The log's row about each data file. Raises DamagedTables: one lies outside the table."""
        with self.place.translated():
            actions, version = pa.table(self.delta.get_add_actions(flatten=True)), self.version
            if self._checked != version:
                self.place.ensure_inside(actions["path"].to_pylist())
                self._checked = version
        return actions


def opened(place: TablePlace, version: int | None = None) -> TableSnapshot | None:
    """The table that lies at `place`, at a version, by default the newest; None when it was never created."""
    with place.translated():
        try:
            return TableSnapshot(place, place.open(version))
        except TableNotFoundError:
            if damages := place.lost_log():
                raise damaged_table(place.root.shown, place.name, damages[0]) from None
            return None


def made(place: TablePlace, schema: pa.Schema, properties: Mapping[str, str]) -> TableSnapshot:
    """The table at `place`, created with `schema` and acktrail's own `properties` if it does not exist.
    ConfigurationError also where the storage cannot keep writers apart."""
    found = opened(place)
    if found is not None:
        return found
    own = {PROPERTY_PREFIX + key: value for key, value in properties.items()}
    with place.translated():
        ensure_conditional_put(place.root)
        try:
            delta = DeltaTable.create(
                place.uri,
                commented(place.name, schema),
                mode="error",
                storage_options=place.root.options,
                raise_if_key_not_exists=False,
                **creation(place.name, own),
            )
        except DeltaError:  # another writer created it first?
            found = opened(place)
            if found is None:
                raise
            return found
        return TableSnapshot(place, delta)


def chosen_columns(table: str, columns: Sequence[str] | None) -> pa.Schema:
    """The schema of a table's `columns`; None: of all."""
    schema = TABLES[table]
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _own(entries: Mapping[str, Any]) -> dict[str, str]:
    """acktrail's own `entries`, as text."""
    return {
        key.removeprefix(PROPERTY_PREFIX): value if isinstance(value, str) else json.dumps(value)
        for key, value in entries.items()
        if key.startswith(PROPERTY_PREFIX)
    }


def reconciliation_commit(cluster_id: str | None, run_id: str) -> str:
    """The app id of the commit that brought a reconciliation to a table."""
    return f"acktrail.reconcile/{cluster_id}/{run_id}"


def one_of(column: str, values: Iterable[object]) -> pc.Expression:
    """The rows whose `column` has one of `values`; without values none. (Arrow knows no type for an empty set.)"""
    given = [*values]
    if len(given) == 1:
        return pc.field(column) == given[0]
    return pc.field(column).isin(given) if given else pc.scalar(value=False)


def all_of(*conditions: pc.Expression | None) -> pc.Expression | None:
    """All `conditions` together, without those that are None; None: there is none."""
    given = [condition for condition in conditions if condition is not None]
    return reduce(and_, given) if given else None
