"""The tables under one root: create, append, upsert, read.

A commit is one file in a Delta log, put there only if no other writer put one first. It carries rows, positions (Delta
app transactions) and metadata together: all of it is there, or nothing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import (
    AcktrailError,
    ConcurrentCommit,
    ConfigurationError,
    DamagedTables,
    OutcomeUnknown,
    UnknownName,
)
from acktrail.tables.delta.cast_schema import cast_to_schema
from acktrail.tables.delta.damaged_files import Damage
from acktrail.tables.delta.durable_commits import bring_to_disk
from acktrail.tables.delta.native_stderr import without_panics
from acktrail.tables.delta.storage_errors import damaged_table, storage_failure
from acktrail.tables.delta.table_layout import CHUNK, creation, writer_properties
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_root import table_root
from acktrail.tables.delta.table_snapshot import COMMIT_ID, PROPERTY_PREFIX, DataFile, TableSnapshot
from acktrail.tables.delta.upsert import UPSERT_RULES, merge_rows
from acktrail.tables.delta.write_probe import ensure_conditional_put, ensure_writable

__all__ = ["Tables"]

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_NO_TEXT: Final[Mapping[str, str]] = MappingProxyType({})

_PATIENCE: Final = {"connect_timeout": "5s", "retry_timeout": "30s", "max_retries": "5"}
"""For object storage, unless the options say otherwise."""

_APPEND_ONLY: Final = "delta.appendOnly"
_RETRIES: Final = 30
"""How often a commit tries again when others commit in between and nothing contradicts it."""


class Tables:
    """Delta tables under `config`'s root. Each call sees the newest version; share one object between no threads."""

    def __init__(self, config: TablesConfig) -> None:
        self._config = config
        self._root = table_root(config)
        self._options = None if self._root.is_local else {**_PATIENCE, **config.options}

    @property
    def root(self) -> str:
        """The root as it may be shown: without credentials."""
        return self._root.shown

    @property
    def config(self) -> TablesConfig:
        return self._config

    def exists(self, name: str) -> bool:
        """Whether anything ever created the table `name`."""
        return self.snapshot(name) is not None

    def snapshot(self, name: str, version: int | None = None) -> TableSnapshot | None:
        """A version of a table, by default the newest; None when it was never created.

        Raises:
            UnknownName: for a name that is none of ``TABLES``.
            ConfigurationError, RetryableError: when the root cannot be read.
        """
        _check_name(name)
        place = self._place(name)
        with place.translated():
            try:
                return TableSnapshot(place, place.open(version))
            except TableNotFoundError:
                return None

    def prepare(self) -> None:
        """See that tables can be made under the root, before work is done for them; makes a folder, and no table.

        Raises:
            ConfigurationError, RetryableError: they cannot.
        """
        with self._translated():
            if self._root.is_local:
                Path(self._root.uri).mkdir(parents=True, exist_ok=True)
                if not os.access(self._root.uri, os.W_OK | os.X_OK):
                    raise PermissionError("permission denied")
            ensure_conditional_put(self._root, self._options)

    def damaged(self, damage: Damage, name: str, *, more: int = 0) -> DamagedTables:
        """The error that says what is wrong with a table, and with how many files more."""
        return damaged_table(self.root, name, damage, more=more)

    def place(self, name: str) -> TablePlace:
        """Where the files of a table lie.

        Raises:
            UnknownName: for a name that is none of ``TABLES``.
        """
        _check_name(name)
        return self._place(name)

    @contextmanager
    def rewritable(self, name: str) -> Iterator[None]:
        """For a table that is only added to: its rows may be replaced until the block ends.

        Raises:
            ConfigurationError, RetryableError: the storage refused.
        """
        place = self._place(name)
        with place.translated():
            place.open().alter.set_table_properties({_APPEND_ONLY: "false"})
        try:
            yield
        finally:
            with place.translated():
                place.open().alter.set_table_properties({_APPEND_ONLY: "true"})

    def probe_write(self) -> None:
        """See that tables under the root can be written: an empty file is written and removed.

        Raises:
            ConfigurationError, RetryableError: they cannot.
        """
        with self._translated():
            ensure_writable(self._root, self._options)

    def create(self, name: str, *, properties: Mapping[str, str] = _NO_TEXT) -> TableSnapshot:
        """The table `name`, made if it is not there; `properties` count only then.

        Raises:
            ConfigurationError: when the root cannot be written, or its storage cannot keep writers apart.
        """
        found = self.snapshot(name)
        if found is not None:
            return found
        place = self._place(name)
        with place.translated():
            ensure_conditional_put(self._root, self._options)
            try:
                return TableSnapshot(place, self._create(name, properties))
            except DeltaError:
                found = self.snapshot(name)
                if found is None:
                    raise
                return found

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        transactions: Mapping[str, int] = _NOTHING,
        expected: Mapping[str, int | None] | None = None,
        metadata: Mapping[str, str] = _NO_TEXT,
        at: TableSnapshot | None = None,
    ) -> int:
        """One commit of `rows`, `transactions` (number by app id) and `metadata`; gives its version.

        Rows lie in the file as they come where `rows` is in one piece (``combine_chunks``). `expected` are the numbers
        that the app ids must have before the commit (None: none yet). Columns that `rows` lacks are null; a column that
        the stored table lacks is added to it. `rows` may be empty. `at`: the newest version, where the caller has just
        read it; it is the version of this commit afterwards.

        Raises:
            ConcurrentCommit: a number was not as expected, or another writer moved it meanwhile; nothing landed.
            OutcomeUnknown: the storage failed so that nobody can say whether the commit landed.
            ConfigurationError, RetryableError: the storage refused or failed; nothing landed.
        """
        snapshot = self.create(name) if at is None else at
        self._check_expected(snapshot, expected or {})
        write = self._writing(snapshot, cast_to_schema(rows, TABLES[name]), mode="append")
        return self._commit(snapshot, write, transactions, metadata)

    def replace(
        self,
        name: str,
        rows: pa.Table,
        *,
        first_chunk: int | None = None,
        transactions: Mapping[str, int] = _NOTHING,
        expected: Mapping[str, int | None] | None = None,
        metadata: Mapping[str, str] = _NO_TEXT,
    ) -> int:
        """Let `rows` stand for all rows of a table, or of a chunked one for those of `first_chunk` and later chunks.

        One commit, with `transactions`, `expected` and `metadata` as in ``append``; gives its version. Rows lie in a
        chunk's files as they come.

        Raises:
            ConcurrentCommit, OutcomeUnknown, ConfigurationError, RetryableError: as ``append``.
        """
        snapshot = self.create(name)
        self._check_expected(snapshot, expected or {})
        predicate = None if first_chunk is None else f"{CHUNK} >= {first_chunk:d}"
        # In one piece: the writer takes several at once and lays them down in any order.
        ordered = cast_to_schema(rows, TABLES[name]).combine_chunks()
        write = self._writing(snapshot, ordered, mode="overwrite", predicate=predicate)
        return self._commit(snapshot, write, transactions, metadata)

    def upsert(self, name: str, rows: pa.Table, *, transactions: Mapping[str, int] = _NOTHING) -> int:
        """Insert or renew rows of a keyed table (``UPSERT_RULES``) in one commit; gives its version.

        The same call twice leaves the table as after the first. Of rows with the same key in `rows` the last counts.

        Raises:
            ConcurrentCommit, OutcomeUnknown, ConfigurationError, RetryableError: as ``append``.
        """
        keyed = UPSERT_RULES[name]
        snapshot = self.create(name)
        distinct = keyed.last_of_each(cast_to_schema(rows, TABLES[name]))
        if not distinct.num_rows:
            return snapshot.version
        return self._commit(
            snapshot, lambda properties: merge_rows(snapshot.delta, keyed, distinct, properties), transactions, _NO_TEXT
        )

    def read(self, name: str, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows of a table (see ``TableSnapshot.read``); none when the table was never created.

        Raises:
            UnknownName: for a name that is none of ``TABLES``.
        """
        snapshot = self.snapshot(name)
        if snapshot is None:
            wanted = TABLES[name].names if columns is None else columns
            return TABLES[name].empty_table().select(list(wanted))
        return snapshot.read(columns=columns, where=where)

    def read_files(
        self,
        name: str,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Rows of some of a table's files (``TableSnapshot.files``), without a look at its log: for other processes."""
        if not paths:
            return TABLES[name].empty_table().select(list(columns or TABLES[name].names))
        wanted = TABLES[name].names if columns is None else list(columns)
        batches = self._place(name).file_batches(TABLES[name], paths, wanted, where)
        return pa.Table.from_batches(batches, schema=pa.schema([TABLES[name].field(each) for each in wanted]))

    def file_batches(
        self,
        name: str,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        sparing: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """What ``read_files`` gives, piece by piece, in the order of `paths`; `sparing`: nothing is read ahead."""
        wanted = TABLES[name].names if columns is None else list(columns)
        yield from self._place(name).file_batches(TABLES[name], paths, wanted, where, sparing=sparing)

    def files_since(self, snapshot: TableSnapshot, version: int | None) -> tuple[DataFile, ...]:
        """The files of `snapshot` that were not there at `version`; all of them for None, or where the log no longer
        has that version."""
        if version == snapshot.version:
            return ()
        if version is None:
            return snapshot.files()
        try:
            place = self._place(snapshot.name)
            before = TableSnapshot(place, place.open(version))
            known = {file.path for file in before.files()}
        except (DeltaError, OSError, AcktrailError):
            return snapshot.files()
        return tuple(file for file in snapshot.files() if file.path not in known)

    def paths_at(self, name: str, version: int) -> frozenset[str] | None:
        """The files that a table had at an earlier version; None where its log no longer has that one."""
        try:
            before = self.snapshot(name, version=version)
        except ConfigurationError:
            return None
        return None if before is None else frozenset(before.statistics(()))

    def transaction_version(self, name: str, app_id: str) -> int | None:
        """The number committed last to a table under `app_id`; None when there is none."""
        snapshot = self.snapshot(name)
        return None if snapshot is None else snapshot.transaction_version(app_id)

    def _place(self, name: str) -> TablePlace:
        return TablePlace(name=name, root=self._root, options=self._options)

    def _create(self, name: str, properties: Mapping[str, str]) -> DeltaTable:
        own = {PROPERTY_PREFIX + key: value for key, value in properties.items()}
        layout = creation(name)
        return DeltaTable.create(
            self._root.table(name),
            TABLES[name],
            mode="error",
            partition_by=layout["partition_by"],
            configuration={**layout["configuration"], **own},
            storage_options=self._options,
            raise_if_key_not_exists=False,
        )

    def _check_expected(self, snapshot: TableSnapshot, expected: Mapping[str, int | None]) -> None:
        for app_id, number in expected.items():
            found = snapshot.transaction_version(app_id)
            if found != number:
                raise _moved(snapshot.name, {"app_id": app_id, "expected": number, "found": found})

    @staticmethod
    def _writing(
        snapshot: TableSnapshot,
        rows: pa.Table,
        *,
        mode: Literal["append", "overwrite"],
        predicate: str | None = None,
    ) -> Callable[[CommitProperties], None]:
        grows = len(snapshot.delta.schema().fields) != len(rows.column_names)

        def write(properties: CommitProperties) -> None:
            write_deltalake(
                snapshot.delta,
                rows,
                mode=mode,
                schema_mode="merge" if grows else None,
                predicate=predicate,
                writer_properties=writer_properties(snapshot.name),
                commit_properties=properties,
            )

        return write

    def _commit(
        self,
        snapshot: TableSnapshot,
        write: Callable[[CommitProperties], None],
        transactions: Mapping[str, int],
        metadata: Mapping[str, str],
    ) -> int:
        base, commit_id = snapshot.version, uuid.uuid4().hex
        properties = CommitProperties(
            custom_metadata={PROPERTY_PREFIX + key: text for key, text in {**metadata, COMMIT_ID: commit_id}.items()},
            max_commit_retries=_RETRIES,
            app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
        )
        try:
            with without_panics():
                write(properties)
        except (DeltaError, OSError) as error:
            # A commit whose answer got lost is found by its id: writing it again would double its rows.
            landed = self._landed(snapshot.name, base, commit_id, error)
            if landed is None:
                raise self._refused(snapshot.name, error) from None
            self._bring_to_disk(snapshot.name, landed)
            return landed
        self._bring_to_disk(snapshot.name, snapshot.version)
        return snapshot.version

    def _bring_to_disk(self, name: str, version: int) -> None:
        folder = self._place(name).folder
        if folder is not None:
            try:
                bring_to_disk(folder, version)
            except OSError as error:
                raise OutcomeUnknown(
                    f"tables at {self.root}: the commit to {name} landed but did not reach the disk",
                    hint="check the disk, then run again",
                    data={"table": name, "version": version, "failure": type(error).__name__},
                ) from None

    def _landed(self, name: str, base: int, commit_id: str, error: Exception) -> int | None:
        try:
            newest = self.snapshot(name)
            commits = [] if newest is None else newest.commits(after=base)
        except (AcktrailError, DeltaError, OSError):
            raise OutcomeUnknown(
                f"tables at {self.root}: nobody can say whether the commit to {name} landed",
                hint="run again: positions are read from the table, so that nothing is lost or doubled",
                data={"table": name, "failure": type(error).__name__},
            ) from None
        return next((c.version for c in commits if c.metadata.get(COMMIT_ID) == commit_id), None)

    def _refused(self, name: str, error: Exception) -> AcktrailError:
        if isinstance(error, CommitFailedError):
            return _moved(name, {})
        return self._place(name).failure(error)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, pa.ArrowInvalid) as error:
            raise storage_failure(error, self.root) from None


def _moved(name: str, data: Mapping[str, object]) -> ConcurrentCommit:
    return ConcurrentCommit(
        f"another writer committed to {name} first; nothing of this commit landed",
        hint="let one exporter write to these tables at a time, then run again",
        data={"table": name, **data},
    )


def _check_name(name: str) -> None:
    if name not in TABLES:
        raise UnknownName("table", name, nearest=get_close_matches(name, TABLES, n=3))
