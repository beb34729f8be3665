"""A sink that writes each row as JSON to an SQLite database, in one transaction with the positions."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from acktrail.errors import ConcurrentCommit, ConfigurationError, RetryableError, RowsRefused
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import NON_EMPTY, ConfigDef, ConfigKey, ConfigType, Importance
from acktrail_connect.contract import SinkConnector, SinkTask, SinkTaskContext
from acktrail_connect.source_batches import Commit, SourceBatch

_TABLES = """
CREATE TABLE IF NOT EXISTS acktrail_rows (tbl TEXT NOT NULL, source_partition TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS acktrail_positions (
  connector TEXT NOT NULL, source_partition TEXT NOT NULL, position TEXT NOT NULL,
  PRIMARY KEY (connector, source_partition)
);
"""
_PATIENCE_S = 10.0
Positions = Mapping[SourcePartition, Position]


class SqliteSink(SinkConnector):
    """Rows of all tables in one: ``acktrail_rows (tbl, source_partition, content)``."""

    description = "Writes rows as JSON to an SQLite database, exactly once."
    config_def = ConfigDef(
        [
            ConfigKey(
                name="file",
                type=ConfigType.STRING,
                documentation="The database's file; it is made where it is missing.",
                importance=Importance.HIGH,
                validator=NON_EMPTY,
            )
        ]
    )

    @property
    def _file(self) -> Path:
        return Path(self.config["file"]).absolute()

    def start(self) -> None:
        if not self._file.parent.is_dir():
            raise ConfigurationError(f"{self._file.parent} is no folder", hint="set sink.file")

    def task(self, context: SinkTaskContext) -> SqliteTask:
        return SqliteTask(self._file, context.connector)

    def positions(self, connector: str, source_partitions: Sequence[SourcePartition]) -> Positions:
        with translated(), closing(opened(self._file)) as database:
            return stored_positions(database, connector)


class SqliteTask(SinkTask):
    """Holds what was put until the flush."""

    def __init__(self, file: Path, connector: str) -> None:
        self._file, self._connector = file, connector
        self._database: sqlite3.Connection | None = None
        self._committed: dict[SourcePartition, Position | None] = {}
        self._pending: list[SourceBatch] = []

    def start(self) -> None:
        with translated():
            self._database = opened(self._file)

    def position(self, source_partition: SourcePartition) -> Position | None:
        if source_partition not in self._committed:
            with translated():
                found = stored_positions(self._opened, self._connector)
            self._committed[source_partition] = found.get(source_partition)
        return self._committed[source_partition]

    def put(self, batch: SourceBatch) -> None:
        if batch.position is None:
            raise RowsRefused("SqliteSink takes rows with a position, not observations")
        has_rows = any(rows.num_rows for rows in batch.rows.values())
        for table, rows in batch.rows.items():
            try:
                json.dumps(rows.to_pylist())
            except (TypeError, ValueError) as error:
                raise RowsRefused(f"rows of {table} are no JSON: {error}") from error
        if has_rows or batch.position != self._reached(batch.source_partition):
            self._pending.append(batch)

    def _reached(self, source_partition: SourcePartition) -> Position | None:
        own = (batch.position for batch in reversed(self._pending) if batch.source_partition == source_partition)
        return next(own, self.position(source_partition))

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for batch in self._pending for rows in batch.rows.values())

    def flush(self) -> Commit:
        batches, self._pending = self._pending, []  # after an error nothing is pending
        positions = {batch.source_partition: batch.position for batch in batches if batch.position is not None}
        counts: Counter[str] = Counter()
        if batches:
            with translated(), self._opened as database:  # one transaction: all of it lands, or nothing
                database.execute("BEGIN IMMEDIATE")  # a second writer waits here, and then finds other positions
                self._check_positions(stored_positions(database, self._connector), positions)
                for batch in batches:
                    for table, rows in batch.rows.items():
                        counts[table] += rows.num_rows
                        own = [(table, batch.source_partition, json.dumps(row)) for row in rows.to_pylist()]
                        database.executemany("INSERT INTO acktrail_rows VALUES (?, ?, ?)", own)
                reached = [(self._connector, part, json.dumps(position)) for part, position in positions.items()]
                database.executemany("INSERT OR REPLACE INTO acktrail_positions VALUES (?, ?, ?)", reached)
        self._committed |= positions
        return Commit(rows=counts, positions=positions)

    def stop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._database is not None, "the worker calls start first"
        return self._database

    def _check_positions(self, stored: Positions, positions: Positions) -> None:
        if any(stored.get(part) != self._committed[part] for part in positions):
            self._committed.clear()
            raise ConcurrentCommit("another writer moved a position first", hint="the task continues where that one is")


def opened(file: Path) -> sqlite3.Connection:
    """The database; any thread may use it, one at a time."""
    database = sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    database.executescript(_TABLES)
    return database


def stored_positions(database: sqlite3.Connection, connector: str) -> dict[SourcePartition, Position]:
    """All that `connector` has committed."""
    text = "SELECT source_partition, position FROM acktrail_positions WHERE connector = ?"
    return {SourcePartition(part): json.loads(position) for part, position in database.execute(text, [connector])}


@contextmanager
def translated() -> Iterator[None]:
    """SQLite's errors as acktrail's: a database that is locked or a disk that is full is waited for."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise RetryableError(
            f"the database does not answer: {error}", hint="is its disk full, or its file locked?"
        ) from error
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(f"the database cannot be used: {error}", hint="set sink.file to one") from error
