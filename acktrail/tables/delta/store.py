"""The tables under one root: create, append, upsert, read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
from deltalake.exceptions import CommitFailedError

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, ConfigurationError, NoTables, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES, with_dictionaries
from acktrail.tables.delta.bucket import ensure_conditional_put
from acktrail.tables.delta.delta_log_writer import (
    add_actions,
    check_expected,
    check_plain,
    commit,
    prepare_change,
    remove_action,
    write_data_file,
)
from acktrail.tables.delta.storage_errors import REMADE
from acktrail.tables.delta.table_layout import CHUNK, cast_to_schema, is_append_only, last_of_each_key, merge_rows
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_root import ensure_writable, table_root
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns, made, opened

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_APPEND_ONLY: Final = "delta.appendOnly"
_MERGES: Final = 5
"""Tries of a merge beside other writers."""
_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.05
_STEPS: Final = 25
"""Versions that a followed table is taken forward: those between two checkpoints."""
_NO_CHUNK: Final = 1 << 62
"""A number beyond that of every chunk."""
_MOST_READ: Final = 64
_read: Final[dict[str, TableSnapshot]] = {}
"""By folder: the newest version of a table that was read in this process. No commit is made by these objects."""
_begun: Final[set[str]] = set()
"""Roots under which this process may make the first table (``Tables.begin``)."""


class CommitOptions(TypedDict, total=False):
    """What a commit brings beside rows: `transactions` (number by app id) and `metadata`; `expected`: the numbers that
    app ids must have before it (None: none yet). `at`: the newest version, where the caller has just read it; it is the
    version of this commit afterwards."""

    transactions: Mapping[str, int]
    expected: Mapping[str, int | None] | None
    metadata: Mapping[str, str]
    at: TableSnapshot | None


class Tables:
    """Delta tables under `config`'s root. Each call sees the newest version; share one object between no threads.

    A table that is missing among others is empty so far: nothing came for it yet.

    Raises (all methods):
        NoTables: the root has no table at all, and this process did not ``begin`` to make tables there.
        UnknownName: for a name that is none of ``TABLES`` and was not admitted.
        ConfigurationError, RetryableError: the storage refused or failed; nothing landed.

    Raises (those that commit):
        ConcurrentCommit: a number was not as expected, or another writer moved it meanwhile; nothing landed.
        OutcomeUnknown: the storage failed, and it is not known whether the commit landed.
    """

    def __init__(self, config: TablesConfig) -> None:
        self.config: Final = config
        self._root = table_root(config)
        self._followed: dict[str, tuple[TableSnapshot, int]] = {}
        self._others: set[str] = set()
        self._is_there = False

    @property
    def root(self) -> str:
        """The root without credentials, for messages."""
        return self._root.shown

    def exists(self, name: str) -> bool:
        """Whether anything ever created the table `name`."""
        return self.snapshot(name) is not None

    def snapshot(self, name: str, version: int | None = None) -> TableSnapshot | None:
        """A version of a table, by default the newest; None when it was never created. The newest one is opened once
        for all who read it: opening costs milliseconds, the look whether it still is the newest one next to nothing."""
        if version is not None:
            return opened(self.place(name), version)  # the caller knows that the table is there
        uri = self.place(name).uri
        if (known := _read.get(uri)) is not None and known.is_newest():
            return known
        found = opened(self.place(name))
        if found is None:
            self.ensure_there()
        elif found.is_local:
            if len(_read) >= _MOST_READ:
                _read.clear()
            _read[uri] = found
        return found

    def followed(self, name: str) -> TableSnapshot | None:
        """``snapshot`` of the newest version, for callers that ask again and again, or commit to it: mostly the same
        object, which reads only what was committed since. It is opened again from time to time: each step takes memory
        and makes the next one slower. Raises ConfigurationError where the table was followed before and is gone."""
        known, opened_at = self._followed.get(name, (None, 0))
        if known is None or known.version >= opened_at + _STEPS or not known.refresh():
            found = opened(self.place(name))
            if found is not None:
                self._followed[name] = found, found.version
            elif known is not None and name not in REMADE:  # a repair removes these, to be built again
                raise ConfigurationError(
                    f"tables at {self.root}: {name} does not exist any more: it was deleted during the write",
                    hint="restore it, then restart; a restart without it exports only the records that Kafka still has",
                    data={"root": self.root, "table": name},
                )
            else:
                self.ensure_there()
            known = found
        return known

    def begin(self) -> None:
        """Let this process make the first table under the root: without tables the root then is new, not absent."""
        _begun.add(self._root.uri)

    def why_absent(self) -> str | None:
        """Why nothing under the root is a table; None: something is."""
        with self._root.translated():
            return self._root.why_no_tables()

    def ensure_there(self) -> None:
        """Raise NoTables unless something under the root is a table, or this process may make the first one."""
        if self._is_there or self._root.uri in _begun:
            return
        why = self.why_absent()
        if why is not None:
            hint = "correct --tables or ACKTRAIL_TABLES; for a new cluster `acktrail run export` makes them"
            raise NoTables(f"no tables at {self.root}: {why}", hint=hint, data={"root": self.root})
        self._is_there = not self._root.is_local  # a look at a folder costs next to nothing

    @staticmethod
    def open_anew() -> None:
        """Open every table again when it is read next: what is opened does not show that an older commit was lost."""
        _read.clear()

    def prepare(self) -> None:
        """``begin``, once tables can be created under the root; creates a folder, and no table."""
        self.begin()
        with self._root.translated():
            if self._root.is_local:
                Path(self._root.uri).mkdir(parents=True, exist_ok=True)
                if not os.access(self._root.uri, os.W_OK | os.X_OK):
                    raise PermissionError("permission denied")
            ensure_conditional_put(self._root)

    def folders(self) -> set[str]:
        """The names of all folders under the root."""
        with self._root.translated():
            infos = self._root.storage().get_file_info(fs.FileSelector("", allow_not_found=True))
        return {info.base_name for info in infos if info.type == fs.FileType.Directory}

    def admit(self, name: str) -> None:
        """Take `name` for a table, too: that of a connector."""
        self._others.add(name)

    def place(self, name: str) -> TablePlace:
        """Where the files of a table lie."""
        if name not in TABLES and name not in self._others:
            raise UnknownName("table", name, known=TABLES)
        return TablePlace(name=name, root=self._root)

    @contextmanager
    def rewritable(self, name: str) -> Iterator[None]:
        """Rows of an append-only table may be replaced or removed within the block. An interrupted one is ended by the
        next. Raises ConcurrentCommit (others kept committing)."""
        if not is_append_only(name):
            yield
            return
        self.keep_rows(name, is_on=False)
        try:
            yield
        finally:
            self.keep_rows(name, is_on=True)

    def keep_rows(self, name: str, *, is_on: bool) -> None:
        """Make a table append-only, or not. Raises ConcurrentCommit (others kept committing)."""
        for _ in range(_ATTEMPTS):
            snapshot, wanted = opened(self.place(name)), str(is_on).lower()
            if snapshot is None or snapshot.delta.metadata().configuration.get(_APPEND_ONLY) == wanted:
                return
            with snapshot.place.translated(), suppress(CommitFailedError):  # of another writer's commit
                snapshot.delta.alter.set_table_properties({_APPEND_ONLY: wanted})
                return
            time.sleep(_PAUSE_S)
        raise kept_committing(name)

    def probe_write(self) -> None:
        """Check that tables under the root can be written: an empty file is written and removed."""
        with self._root.translated():
            ensure_writable(self._root)

    def create(
        self, name: str, *, schema: pa.Schema | None = None, properties: Mapping[str, str] = _NOTHING
    ) -> TableSnapshot:
        """The table `name`, created with `schema` (None: acktrail's own) and `properties` if it does not exist. The
        first one under a root is reported. ConfigurationError also where the storage cannot keep writers apart."""
        self.begin()
        found = self.followed(name)
        if found is not None:
            return found
        why = self.why_absent()
        created = made(self.place(name), schema or TABLES[name], properties)
        if why is not None:
            doing(f"new tables were made at {self.root}: {why}", stays=True)
        self._followed[name] = created, created.version
        return created

    def append(
        self, name: str, rows: pa.Table | Sequence[Mapping[str, object]], **commit_options: Unpack[CommitOptions]
    ) -> int:
        """One commit of `rows` and `commit_options`; gives its version. Rows keep their order; columns that they lack
        are null. `rows` may be empty. Raises ValueError (a column that the table does not have)."""
        own = self._rows(name, rows)
        return self._commit(name, lambda place: write_data_file(place, own), **commit_options)

    def replace(
        self,
        name: str,
        rows: pa.Table,
        *,
        chunk: int | None = None,
        last_chunk: int | None = None,
        **commit_options: Unpack[CommitOptions],
    ) -> int:
        """``append`` in the place of all rows, or in a chunked table of those in `chunk` and later chunks, up to
        `last_chunk` where it is given; `rows` become that chunk."""
        own = self._rows(name, rows) if chunk is None else self._rows(name, rows).drop_columns([CHUNK])
        replaced = range(chunk or 0, _NO_CHUNK if last_chunk is None else last_chunk + 1)
        return self._commit(name, lambda place: write_data_file(place, own), replaced, chunk, **commit_options)

    def commit_files(
        self,
        name: str,
        files: pa.Table,
        *,
        replaces: bool = False,
        chunk: int | None = None,
        **commit_options: Unpack[CommitOptions],
    ) -> int:
        """``append`` of data files (``WRITTEN_FILES``) that others wrote, or ``replace`` by them."""
        own = files.filter(pc.equal(files["table"], name))
        replaced = range(chunk or 0, _NO_CHUNK) if replaces else None
        return self._commit(name, lambda _: own, replaced, chunk, **commit_options)

    def _rows(self, name: str, rows: pa.Table | Sequence[Mapping[str, object]]) -> pa.Table:
        """`rows` in the columns of a table of acktrail's own."""
        self.place(name)
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name])
        return cast_to_schema(rows, TABLES[name])

    def _commit(
        self,
        name: str,
        write: Callable[[TablePlace], pa.Table],
        replaced: range | None = None,
        chunk: int | None = None,
        *,
        transactions: Mapping[str, int] = _NOTHING,
        expected: Mapping[str, int | None] | None = None,
        metadata: Mapping[str, str] = _NOTHING,
        at: TableSnapshot | None = None,
    ) -> int:
        """One commit of the files that `write` gives, as a `chunk`; the chunks `replaced` go, or without a chunk all
        files."""
        snapshot = at or opened(self.place(name)) or self.create(name)
        check_expected(snapshot, expected)
        check_plain(snapshot)
        with snapshot.place.translated():
            added = add_actions(write(snapshot.place), chunk)
        if replaced is None or chunk is None:
            change = prepare_change(snapshot, added, mode="append" if replaced is None else "overwrite")
        else:
            gone = [file for file in snapshot.files() if int(file.chunk or 0) in replaced]
            change = prepare_change(snapshot, added, [remove_action(file, data_change=True) for file in gone])
        return commit(snapshot, change, transactions, metadata)

    def upsert(
        self,
        name: str,
        rows: pa.Table,
        *,
        transactions: Mapping[str, int] = _NOTHING,
        expected: Mapping[str, int | None] | None = None,
    ) -> int:
        """Insert or update rows of a table with a key (``table_layout``) in one commit; gives its version. A second
        call with the same rows changes nothing. The last of several rows with the same key counts. Without rows there
        is no commit. Where another writer commits meanwhile the rows are merged into what it left."""
        distinct = last_of_each_key(name, self._rows(name, rows))
        for tries_left in reversed(range(_MERGES)):
            snapshot = opened(self.place(name)) or self.create(name)
            check_expected(snapshot, expected)
            if not distinct.num_rows:
                break
            try:
                return commit(snapshot, partial(merge_rows, name, snapshot.delta, distinct), transactions, _NOTHING)
            except ConcurrentCommit:
                if not tries_left:
                    raise
        return snapshot.version

    def read(self, name: str, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows of a table (see ``TableSnapshot.read``); none when the table was never created."""
        snapshot = self.snapshot(name)
        if snapshot is None:
            return chosen_columns(name, columns).empty_table()
        return snapshot.read(columns=columns, where=where)

    def rows(
        self, name: str, equal: Mapping[str, object] = _NOTHING, *, columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """``TableSnapshot.rows`` of the newest version; none when the table was never created."""
        snapshot = self.snapshot(name)
        return [] if snapshot is None else snapshot.rows(equal, columns=columns)

    def read_files(
        self,
        name: str,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Rows of some of a table's files (``TableSnapshot.files``), without reading its log: for other processes."""
        batches = self.file_batches(name, paths, columns=columns, where=where)
        return pa.Table.from_batches(batches, schema=chosen_columns(name, columns))

    def file_batches(
        self,
        name: str,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        sparing: bool = False,
        groups: pc.Expression | None = None,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ``read_files`` batch by batch, files and rows in their order; columns that a file lacks are null.
        `sparing`: one row group at a time; a scanner of all reads up to 1 GiB ahead of a slow reader; with `groups`,
        only row groups whose bounds may satisfy it, which costs nothing a row. `dictionaries`: text columns that
        stay as dictionaries, as they lie in the files."""
        if not paths:
            return
        place, schema = self.place(name), with_dictionaries(TABLES[name], dictionaries)
        wanted = schema.names if columns is None else list(columns)
        layout = ds.ParquetFileFormat(dictionary_columns=set(dictionaries))
        with place.translated():
            dataset = ds.dataset(list(paths), schema=schema, format=layout, filesystem=place.storage())
            if not sparing:
                yield from dataset.scanner(columns=wanted, filter=where).to_batches()
                return
            for file in dataset.get_fragments():
                for group in file.split_by_row_group(where if groups is None else groups, schema):
                    yield from group.scanner(schema=schema, columns=wanted, filter=where).to_batches()

    def paths_at(self, name: str, version: int) -> frozenset[str] | None:
        """The files that a table had at an earlier version; None where its log no longer has that one."""
        try:
            before = self.snapshot(name, version=version)
        except ConfigurationError:
            return None
        return None if before is None else frozenset(before.statistics(()))

    def transaction_version(self, name: str, app_id: str) -> int | None:
        """The number of the newest commit under `app_id`; None when there is none."""
        snapshot = self.snapshot(name)
        return None if snapshot is None else snapshot.transaction_version(app_id)


def kept_committing(name: str) -> ConcurrentCommit:
    """The error where a table gives no moment of rest."""
    return ConcurrentCommit(f"{name} is changed all the time by other writers", hint="run again")
