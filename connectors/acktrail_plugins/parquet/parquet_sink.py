"""``ParquetSink``: plain Parquet files that any engine reads, exactly once, without a table format."""

from __future__ import annotations

import base64
import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import quote

import pyarrow as pa

from acktrail.connect.config_def import ConfigDef, keys_in
from acktrail.connect.contract import Config, LeaseTerms, SinkConnector, SinkTask, SinkTaskContext, WorkLease
from acktrail.connect.source_batches import Commit, LogSpan, Position, SourceBatch, SourcePartition, parts_of
from acktrail.errors import ConcurrentCommit, ConfigurationError, RowsRefused
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, TABLES
from acktrail.tables.connector_tables import check_table_name, fitted, packed, storage_config, unpacked
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.exported.export_ranges import merge_spans, range_rows
from acktrail.tables.lease import sink_lease
from acktrail_plugins.parquet.parquet_files import FolderFiles, Footer, ParquetFolder, file_storage

_RANGES: Final = "export_ranges"
_LOG: Final = "state_records"
_FOLDER: Final = "folder"
_AT_ONCE: Final = 8
"""Requests to the storage at one time, at the start."""


@dataclass(slots=True, kw_only=True)
class _Stored:
    """What the files have of a source partition."""

    table: str
    footer: Footer
    schema: pa.Schema


@dataclass(slots=True, kw_only=True)
class _Held:
    """What was put of a source partition since its last file."""

    position: Position
    schema: pa.Schema
    table: str | None = None
    rows: list[pa.Table] = field(default_factory=list)
    dead: list[pa.Table] = field(default_factory=list)
    spans: tuple[LogSpan, ...] = ()


class ParquetSinkTask(SinkTask):
    """Writes one file for each source partition and flush. Not thread-safe.

    A source partition lands as a whole or not at all; several of one flush land one after the other. Two writers meet
    in the name of a file, so both must write a source partition to the same table. Before its first
    row a source partition has no table and so no file: its position and its dead letters are held until then. Ranges of
    logs (``export_ranges``) and dead letters are files of the same number, made after the one that brings them, at the
    next start where a crash came between.

    Raises (all methods): as ``ParquetFolder``.
    """

    def __init__(self, storage: FolderFiles, context: SinkTaskContext) -> None:
        self._storage, self._context = storage, context
        self._stored: dict[SourcePartition, _Stored] = {}
        self._held: dict[SourcePartition, _Held] = {}
        self._started = False

    def start(self) -> None:
        """Find what the files have, and make those that a crash left out."""
        if self._started:
            return
        dead = self._context.dead_letter_table
        if dead is not None:
            try:
                check_table_name(dead)
            except RowsRefused as error:
                raise ConfigurationError(f"errors.deadletterqueue.table: {error.message}") from error
        named = stored_partitions(self._storage, lambda name: name.startswith(self._prefix))
        self._stored = {SourcePartition(each.removeprefix(self._prefix)): own for each, own in named.items()}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda each: self._complete(each[0], each[1].footer), self._stored.items()))
        self._started = True

    def position(self, source_partition: SourcePartition) -> Position | None:
        """As of the newest file; None when there is none."""
        stored = self._of(source_partition)
        return None if stored is None else stored.footer.position

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for held in self._held.values() for rows in (*held.rows, *held.dead))

    def put(self, batch: SourceBatch) -> None:
        """Take a batch. Raises RowsRefused: rows without a position, a second table, a name that no table can have, a
        column that changed its type."""
        self.start()
        if batch.position is None:
            raise RowsRefused("rows without a position would be doubled in files", hint="write them with DeltaSink")
        source_partition, stored = batch.source_partition, self._of(batch.source_partition)
        held = self._held.get(source_partition)
        own, dead = parts_of(batch, self._context.dead_letter_table)
        filled = {name: rows for name, rows in own.items() if rows.num_rows or batch.span is not None}
        is_gap = batch.span is not None and batch.span.gap_first is not None
        has_rows = any(rows.num_rows for rows in filled.values())
        if not has_rows and not is_gap and not dead and batch.position == self._reached(stored, held):
            return
        if held is None:
            bound, schema = (None, pa.schema([])) if stored is None else (stored.table, stored.schema)
            held = _Held(position=batch.position, schema=schema, table=bound)
        table = _one_table(source_partition, held.table, [*filled])
        fit = [self._fitted(name, rows, held.schema) for name, rows in filled.items()]
        self._held[source_partition] = held
        held.table, held.position = table, batch.position
        held.rows += fit
        held.schema = fit[0].schema if fit else held.schema
        held.dead += [dead] if dead else []
        if batch.span is not None:
            held.spans = merge_spans(held.spans, batch.span)

    def flush(self) -> Commit:
        """Make a file for each source partition that has a table. After an error nothing is held: ask for positions."""
        self.start()
        rows: Counter[str] = Counter()
        positions: dict[SourcePartition, Position] = {}
        try:
            for source_partition, held in [*self._held.items()]:
                if held.table is not None:
                    rows.update(self._write(source_partition, held, held.table))
                    positions[source_partition] = held.position
                    del self._held[source_partition]
        except BaseException:  # only the files know what landed
            self._held, self._stored, self._started = {}, {}, False
            raise
        return Commit(rows=rows, positions=positions)

    def stop(self) -> None:
        self._held = {}

    @property
    def _prefix(self) -> str:
        return "" if self._context.reads_logs else connector_prefix(self._context.connector)

    def _of(self, source_partition: SourcePartition) -> _Stored | None:
        self.start()
        return self._stored.get(source_partition)

    @staticmethod
    def _reached(stored: _Stored | None, held: _Held | None) -> Position | None:
        if held is not None:
            return held.position
        return None if stored is None else stored.footer.position

    def _fitted(self, name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        if self._context.reads_logs and name == _LOG:
            for column, text in (("cluster_id", self._context.cluster_id), ("run_id", self._context.run_id)):
                if column not in rows.column_names:
                    rows = rows.append_column(column, pa.repeat(pa.scalar(text, pa.string()), rows.num_rows))
            return cast_to_schema(rows, TABLES[name])
        check_table_name(name, rows.schema)
        return fitted(rows, schema, name)

    def _write(self, source_partition: SourcePartition, held: _Held, table: str) -> dict[str, int]:
        stored = self._of(source_partition)
        before = None if stored is None else stored.footer
        parts = pa.concat_tables([held.schema.empty_table(), *held.rows], promote_options="default")
        dead, letters = self._context.dead_letter_table, pa.concat_tables(held.dead) if held.dead else None
        footer = Footer(
            connector=self._context.connector,
            run_id=self._context.run_id,
            number=1 if before is None else before.number + 1,
            before=None if before is None else before.position,
            position=held.position,
            rows=parts.num_rows,
            spans=tuple(self._ranges(held.spans)),
            dead_letters=base64.b64encode(packed(dead, letters)).decode() if letters and dead else None,
        )
        self._folder(table).create(self._named(source_partition), parts, footer)
        self._stored[source_partition] = _Stored(table=table, footer=footer, schema=held.schema)
        return {table: parts.num_rows, **self._complete(source_partition, footer, is_new=True)}

    def _complete(self, source_partition: SourcePartition, footer: Footer, *, is_new: bool = False) -> dict[str, int]:
        """Make the files that follow the one of `footer`, unless they are there; `is_new`: they can hardly be."""
        rows: dict[str, pa.Table] = {}
        if footer.spans:
            spans = [
                {**span, "exported_at": dt.datetime.fromisoformat(str(span["exported_at"]))} for span in footer.spans
            ]
            rows[_RANGES] = pa.Table.from_pylist(spans, schema=EXPORT_RANGES)
        if footer.dead_letters is not None:
            table, letters = unpacked(base64.b64decode(footer.dead_letters))
            rows[table] = letters
        for table, part in rows.items():
            folder = self._folder(table)
            if is_new or not folder.has(self._named(source_partition), footer.number):
                try:
                    folder.create(self._named(source_partition), part, footer.of_follower())
                except ConcurrentCommit:
                    continue  # another writer completed it
        return {table: part.num_rows for table, part in rows.items()}

    def _ranges(self, spans: Sequence[LogSpan]) -> list[dict[str, object]]:
        rows = range_rows(
            spans,
            cluster_id=self._context.cluster_id or "",
            run_id=self._context.run_id,
            exported_at=dt.datetime.now(dt.UTC),
        )
        return [{**row, "exported_at": row["exported_at"].isoformat()} for row in rows]

    def _folder(self, table: str) -> ParquetFolder:
        return ParquetFolder(self._storage, table)

    def _named(self, source_partition: SourcePartition) -> SourcePartition:
        return SourcePartition(self._prefix + source_partition)


def connector_prefix(connector: str) -> str:
    """What stands before a connector's own source partitions in names of folders."""
    return f"{quote(connector, safe='')}/"


def stored_partitions(storage: FolderFiles, wanted: Callable[[str], bool]) -> dict[SourcePartition, _Stored]:
    """What the files have of source partitions whose name in the folders is `wanted`. Cost: one request for each table,
    and three or a few more for each source partition, some of them at a time."""

    def stored(place: tuple[str, SourcePartition]) -> _Stored | None:
        found = ParquetFolder(storage, place[0]).newest(place[1])
        if found is None or found[0].is_follower:
            return None
        return _Stored(table=place[0], footer=found[0], schema=found[1])

    tables = [name for name in storage.folders("") if name != _RANGES and not name.startswith("_")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        named = pool.map(lambda table: ParquetFolder(storage, table).partitions(), tables)
        places = [(table, each) for table, own in zip(tables, named, strict=True) for each in own if wanted(each)]
        found = zip(places, pool.map(stored, places), strict=True)
        return {each: own for (_, each), own in found if own is not None}


def _one_table(source_partition: SourcePartition, bound: str | None, named: Sequence[str]) -> str | None:
    tables = {*named} | ({bound} - {None})
    if len(tables) > 1:
        raise RowsRefused(
            f"the source partition {source_partition} writes to one table, not to {sorted(map(str, tables))}"
        )
    return next(iter(tables), None)


class ParquetSink(SinkConnector):
    """Writes Parquet files into a folder or a bucket."""

    description = "Plain Parquet files in a folder or a bucket, read by any engine, exactly once."
    config_def: ClassVar[ConfigDef] = keys_in(__package__, "folder_keys.toml")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._config = storage_config(config, _FOLDER)
        self._storage = file_storage(self._config)

    def start(self) -> None:
        """Make the folder; see that the bucket keeps two writers apart, as for tables."""
        Tables(self._config).prepare()

    def lease(self, terms: LeaseTerms) -> WorkLease:
        """A small object beside the files (``tables.lease``)."""
        return sink_lease(self._config, terms)

    def task(self, context: SinkTaskContext) -> ParquetSinkTask:
        return ParquetSinkTask(self._storage, context)

    def positions(
        self, connector: str, source_partitions: Sequence[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """Of logs, whichever connector wrote them, and those of `connector`."""
        prefix, logs = connector_prefix(connector), frozenset(source_partitions)
        found = stored_partitions(self._storage, lambda name: name in logs or name.startswith(prefix))
        return {
            each if each in logs else SourcePartition(each.removeprefix(prefix)): stored.footer.position
            for each, stored in found.items()
        }
