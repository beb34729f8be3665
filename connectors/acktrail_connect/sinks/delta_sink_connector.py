"""``DeltaSink`` as a person configures it: Delta tables under one root. Positions that a person moves forward leave a
gap of ``export_ranges``. Its task for a source that reads no log takes any table, any position, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from acktrail.errors import ConfigurationError, InputError, RowsRefused
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.log_positions import SKIPPED_BY_REQUEST, LogSpan, Position, SourcePartition, state_log
from acktrail.tables.connector_tables import Standing, check_table_name, fitted, packed, schema_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.records.export_ranges import StoredRecords
from acktrail.times import new_run_id
from acktrail_connect.address_keys import TABLES_KEYS, tables_config
from acktrail_connect.config_def import ConfigDef
from acktrail_connect.contract import Config, LeaseTerms, SinkConnector, SinkTask, SinkTaskContext, WorkLease
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sinks.write_ahead_positions import Entry, WrittenPositions, append_growing, of_connector, refitted
from acktrail_connect.sinks.writer_lease import sink_lease
from acktrail_connect.source_batches import DEAD_LETTERS, Commit, LogMark, SourceBatch, parts_of

_CONNECTOR: Final = "connector"
_RUN: Final = "run_id"


@dataclass(slots=True, kw_only=True)
class _Put:
    """What was put of one source partition since the last flush. `table` None: no rows so far."""

    table: str | None
    position: Position
    rows: list[pa.Table] = field(default_factory=list)
    dead: list[pa.Table] = field(default_factory=list)


class AnyTableSink(SinkTask):
    """Writes batches of any source into `tables`. Not thread-safe.

    A batch with a position may bring rows for one table of any name that ``check_table_name`` takes; columns that the
    table lacks are added. One commit for each table has the rows and the positions of all source partitions that write
    to it (see ``connector_positions``): after a crash a source partition has its rows and its position, or neither.
    Dead letters follow the commit, and at the next start where a crash came between. A batch without a position brings
    observations for acktrail's own tables (``DeltaSink``).

    Raises (all methods): as ``Tables``; ForeignCluster, DamagedTables as ``DeltaSink``.
    """

    def __init__(self, tables: Tables, context: SinkTaskContext) -> None:
        self._tables, self._context = tables, context
        self._positions = WrittenPositions(tables, context.connector)
        self._pending: dict[SourcePartition, _Put] = {}
        self._put_count = 0
        """Rows in `_pending`: asked for after every batch, so not counted again each time."""
        self._schemas: dict[str, pa.Schema] = {}
        """The columns of tables as they will be after the next flush."""
        self._standings: dict[SourcePartition, Standing] = {}
        self._started = False
        self._own: DeltaSink | None = None

    def start(self) -> None:
        """Check that tables can be created, and deliver dead letters of a commit that a crash followed. Every other
        method does it first."""
        if self._started:
            return
        dead = self._context.dead_letter_table
        if dead is not None:
            self._check_dead_letter_table(dead)
        self._tables.prepare()
        self._standings = self._positions.standings()
        self._positions.complete(self._standings)
        self._started = True

    def position(self, source_partition: SourcePartition) -> Position | None:
        """As of the last commit; None when there is none."""
        return self._standing(source_partition).position

    @property
    def pending_rows(self) -> int:
        return self._put_count + (0 if self._own is None else self._own.pending_rows)

    def put(self, batch: SourceBatch) -> None:
        """Take a batch. One source partition writes to one table, beside dead letters: its position is in that table's
        log. Raises RowsRefused: a second table, a name that no table can have, a column that changed its type, a table
        of acktrail's own."""
        self.start()
        if batch.span is not None:
            raise RowsRefused(
                "the batch has a span of offsets, but its connector does not read logs", hint="set reads_logs there"
            )
        if batch.position is None:
            self._put_observation(batch)
        else:
            self._put_rows(batch, batch.position)

    def flush(self) -> Commit:
        """Commit everything put so far: each table in one commit. Raises ConcurrentCommit, OutcomeUnknown and others;
        then nothing is pending, and a source partition whose table came first may have landed: ask for positions."""
        self.start()
        pending, self._pending, self._put_count = self._pending, {}, 0
        rows: dict[str, int] = {}
        try:
            if pending:
                rows |= self._commit(pending)
            if self._own is not None:
                rows |= self._own.flush().rows
        except BaseException:  # only the tables know what landed
            self._standings.clear()
            self._schemas.clear()
            self._started, self._own = False, None
            raise
        return Commit(rows=rows, positions={each: put.position for each, put in pending.items()})

    def _put_rows(self, batch: SourceBatch, position: Position) -> None:
        source_partition, standing = batch.source_partition, self._standing(batch.source_partition)
        own, dead = parts_of(batch, self._context.dead_letter_table)
        filled = {name: rows for name, rows in own.items() if rows.num_rows}
        put = self._pending.get(source_partition)
        if not filled and not dead and position == (standing.position if put is None else put.position):
            return
        bound = standing.table if put is None else put.table
        fit = {name: self._fitted(name, rows) for name, rows in filled.items()}
        table = _one_table(source_partition, bound, list(fit))
        for name, rows in fit.items():
            self._schemas[name] = rows.schema
        if put is None:
            put = self._pending[source_partition] = _Put(table=table, position=position)
        put.table, put.position = table, position
        put.rows += fit.values()
        self._put_count += sum(rows.num_rows for rows in fit.values())
        if dead is not None and dead.num_rows:
            put.dead.append(dead)
            self._put_count += dead.num_rows

    def _fitted(self, name: str, rows: pa.Table) -> pa.Table:
        if name == self._context.dead_letter_table:
            raise RowsRefused(
                f"the table {name} is reserved for dead letters", hint="rename it with the transform Route"
            )
        check_table_name(name, rows.schema)
        if name not in self._schemas:
            self._schemas[name] = schema_of(self._followed(name))
        fit = fitted(rows, self._schemas[name], name)
        if not fit.num_columns:
            raise RowsRefused(
                f"every column of the rows for {name} has the type null", hint="give at least one column a type"
            )
        return fit

    def _put_observation(self, batch: SourceBatch) -> None:
        foreign = [name for name in batch.rows if name not in TABLES]
        if foreign or self._context.cluster_id is None:
            raise RowsRefused(
                f"rows for {foreign[0] if foreign else 'a cluster'} have no position, so they would be written twice",
                hint="give batches a position",
            )
        if self._own is None:
            self._own = DeltaSink(self._tables, cluster_id=self._context.cluster_id, run_id=self._context.run_id)
        self._own.put(batch)

    def _commit(self, pending: Mapping[SourcePartition, _Put]) -> dict[str, int]:
        by_table: dict[str, dict[SourcePartition, _Put]] = {}
        for source_partition, put in pending.items():
            if put.table is not None:
                by_table.setdefault(put.table, {})[source_partition] = put
        snapshots = {name: of_connector(self._tables, name, self._schemas[name]) for name in by_table}
        entries = {each: self._entry(each, put) for each, put in pending.items()}
        # The tables are there before a position names one: a writer that finds it can keep this one out of it.
        self._positions.write_ahead(entries.values())
        written = {
            name: self._append(snapshots[name], puts, {each: entries[each] for each in puts})
            for name, puts in by_table.items()
        }
        numbers = {each: entry.number for each, entry in entries.items() if entry.dead_letters is not None}
        if numbers and self._context.dead_letter_table is not None:
            written[self._context.dead_letter_table] = self._positions.deliver(numbers)
        for each, entry in entries.items():
            number, table = entry.number, entry.table
            landed = None if table is None else number
            self._standings[each] = Standing(
                position=entry.position, newest=number, landed=landed, table=table, counted=number
            )
        return written

    def _append(
        self, snapshot: TableSnapshot, puts: Mapping[SourcePartition, _Put], entries: Mapping[SourcePartition, Entry]
    ) -> int:
        name = snapshot.name
        parts = [rows for put in puts.values() for rows in put.rows]
        rows = pa.concat_tables([schema_of(snapshot).empty_table(), *parts], promote_options="default")
        rows = refitted(rows, snapshot)
        own = {self._positions.app_id(each): entry for each, entry in entries.items()}
        append_growing(
            snapshot,
            rows,
            {app_id: entry.number for app_id, entry in own.items()},
            {app_id: entry.before.landed for app_id, entry in own.items()},
            {_CONNECTOR: self._context.connector, _RUN: self._context.run_id},
        )
        self._schemas[name] = rows.schema
        return int(rows.num_rows)

    def _entry(self, source_partition: SourcePartition, put: _Put) -> Entry:
        table = self._context.dead_letter_table
        dead = packed(table, pa.concat_tables(put.dead)) if put.dead and table is not None else None
        before = self._standing(source_partition)
        return Entry(
            source_partition=source_partition, before=before, table=put.table, position=put.position, dead_letters=dead
        )

    def _followed(self, name: str) -> TableSnapshot | None:
        self._tables.admit(name)
        return self._tables.followed(name)

    def _standing(self, source_partition: SourcePartition) -> Standing:
        self.start()
        return self._standings.get(source_partition, Standing())

    def _check_dead_letter_table(self, name: str) -> None:
        try:
            check_table_name(name)
            fitted(DEAD_LETTERS.empty_table(), schema_of(self._followed(name)), name)
        except RowsRefused as error:
            raise ConfigurationError(
                f"errors.deadletterqueue.table: {error.message}", hint="name another table"
            ) from error


def _one_table(source_partition: SourcePartition, bound: str | None, named: list[str]) -> str | None:
    """The table of a source partition: the one that it has, or the one that is named first."""
    tables = {*named} | ({bound} - {None})
    if len(tables) > 1:
        shown = " and ".join(sorted(table for table in tables if table is not None))
        raise RowsRefused(
            f"the source partition {source_partition} writes to one table, not to {shown}",
            hint="its position is stored in that table's log: for another table, use another source partition",
            data={"source_partition": str(source_partition)},
        )
    return next(iter(tables), None)


class DeltaSinkConnector(SinkConnector):
    """Writes Delta tables, rows and positions in one commit: those of logs, and any others."""

    description = "Delta tables on object storage, exactly once."
    config_def: ClassVar[ConfigDef] = TABLES_KEYS
    takes_transformed_logs = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._config = tables_config(config)

    @property
    def _tables(self) -> Tables:
        """The tables; this connector may make the first one."""
        tables = Tables(self._config)
        tables.begin()
        return tables

    def start(self) -> None:
        """Check that tables can be created under the root."""
        self._tables.prepare()

    def lease(self, terms: LeaseTerms) -> WorkLease:
        """A small object beside the tables (``tables.lease``)."""
        return sink_lease(self._config, terms)

    def task(self, context: SinkTaskContext) -> SinkTask:
        if not context.reads_logs:
            return AnyTableSink(self._tables, context)
        return DeltaSink(self._tables, cluster_id=context.cluster_id or "", run_id=context.run_id)

    def positions(
        self, connector: str, source_partitions: Sequence[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """Of logs: the numbers that their commits carry, whichever connector made them. Then those of `connector`."""
        tables = self._tables
        return {**_log_positions(tables, source_partitions), **WrittenPositions(tables, connector).positions()}

    def log_marks(self, source_partitions: Sequence[SourcePartition]) -> Mapping[SourcePartition, LogMark]:
        """As the newest commit of ``state_records`` has them."""
        snapshot = self._tables.snapshot("state_records")
        stored = {} if snapshot is None else {each: StoredRecords(snapshot, each, 0) for each in source_partitions}
        return {each: LogMark(own.offset_shift, own.leader_epoch) for each, own in stored.items()}

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """A log can only be moved forward: what is skipped is a recorded gap. Back or away, its rows would be
        doubled."""
        tables = self._tables
        logs = {each: positions[each] for each in positions if state_log(each) is not None}
        moves = _forward_moves(_log_positions(tables, [*logs]), logs)
        if moves:
            _skip_records(tables, moves)
        others = {each: positions[each] for each in positions if each not in logs}
        if others:
            WrittenPositions(tables, connector).move(others)


def _forward_moves(
    present: Mapping[SourcePartition, int], wanted: Mapping[SourcePartition, Position | None]
) -> dict[SourcePartition, int]:
    """The positions that change. Raises InputError when one would go back."""
    moves = {}
    for source_partition, position in wanted.items():
        before = present.get(source_partition)
        if before is None and position is not None:
            raise InputError(
                f"{source_partition} was not exported yet, so it has no position to change",
                hint="resume the connector, and stop it once it has committed",
            )
        if before is not None and (not isinstance(position, int) or position < before):
            raise InputError(
                f"the tables have the records of {source_partition} up to {before}: if they were read again, they "
                f"would double "
                "them",
                hint="to read a log again, export it into tables under another root",
                data={"source_partition": str(source_partition), "position": before},
            )
        if isinstance(position, int) and position != before:
            moves[source_partition] = position
    return moves


def _log_positions(tables: Tables, wanted: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
    snapshot = tables.snapshot("state_records")
    found = {} if snapshot is None else {each: snapshot.transaction_version(each) for each in wanted}
    return {each: number for each, number in found.items() if number is not None}


def _skip_records(tables: Tables, positions: Mapping[SourcePartition, int]) -> None:
    """Move logs of one cluster to positions behind the present ones, in one commit with the gaps."""
    logs = {each: log for each in positions if (log := state_log(each)) is not None}
    sink = DeltaSink(tables, cluster_id=next(cluster_id for cluster_id, _, _ in logs.values()), run_id=new_run_id())
    for source_partition, (_, topic_id, number) in logs.items():
        position = positions[source_partition]
        span = LogSpan(
            topic_id=topic_id,
            partition=number,
            gap_first=sink.position(source_partition) or 0,
            gap_last=position - 1,
            gap_reason=SKIPPED_BY_REQUEST,
            offset_shift=sink.stored.stored_log(source_partition, number).offset_shift,
        )
        sink.put(SourceBatch(source_partition=source_partition, rows={}, position=position, span=span))
    sink.flush()
