"""``DeltaSink`` as a person configures it: Delta tables under one root. Positions that a person moves forward leave a
gap of ``export_ranges``. And the configuration keys with which any connector reaches a folder or an object storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, keys_in, under
from acktrail.connect.contract import Config, LeaseTerms, SinkConnector, SinkTask, SinkTaskContext, WorkLease
from acktrail.connect.source_batches import (
    SKIPPED_BY_REQUEST,
    LogMark,
    LogSpan,
    Position,
    SourceBatch,
    SourcePartition,
    state_log,
)
from acktrail.errors import InputError
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.exported.export_ranges import StoredRecords
from acktrail.tables.lease import sink_lease
from acktrail.tables.sinks.any_table_sink import AnyTableSink
from acktrail.tables.sinks.connector_positions import ConnectorPositions
from acktrail.times import new_run_id

_OPTION: Final = "option."
_TABLES: Final = "tables"


def storage_config(config: Config, root: str) -> TablesConfig:
    """The storage of a parsed configuration: the key `root`, and options one by one."""
    options = {name: str(value) for name, value in under(config, _OPTION).items()}
    return TablesConfig(uri=config[root], options=options)


TABLES_KEYS: Final = keys_in(__package__, "tables_keys.toml")


def tables_config(config: Config) -> TablesConfig:
    """Where the tables of a parsed configuration are. Raises as ``storage_config``."""
    return storage_config(config, _TABLES)


class DeltaSinkConnector(SinkConnector):
    """Writes Delta tables, rows and positions in one commit: those of logs, and any others."""

    description = "Delta tables on object storage, exactly once."
    config_def: ClassVar[ConfigDef] = TABLES_KEYS
    takes_transformed_logs = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tables = tables_config(config)

    def start(self) -> None:
        """Check that tables can be created under the root."""
        Tables(self._tables).prepare()

    def lease(self, terms: LeaseTerms) -> WorkLease:
        """A small object beside the tables (``tables.lease``)."""
        return sink_lease(self._tables, terms)

    def task(self, context: SinkTaskContext) -> SinkTask:
        if not context.reads_logs:
            return AnyTableSink(Tables(self._tables), context)
        return DeltaSink(Tables(self._tables), cluster_id=context.cluster_id or "", run_id=context.run_id)

    def positions(
        self, connector: str, source_partitions: Sequence[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """Of logs: the numbers that their commits carry, whichever connector made them. Then those of `connector`."""
        tables = Tables(self._tables)
        return {**_log_positions(tables, source_partitions), **ConnectorPositions(tables, connector).positions()}

    def log_marks(self, source_partitions: Sequence[SourcePartition]) -> Mapping[SourcePartition, LogMark]:
        """As the newest commit of ``state_records`` has them."""
        snapshot = Tables(self._tables).snapshot("state_records")
        stored = {} if snapshot is None else {each: StoredRecords(snapshot, each, 0) for each in source_partitions}
        return {each: LogMark(own.offset_shift, own.leader_epoch) for each, own in stored.items()}

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """A log can only be moved forward: what is skipped is a recorded gap. Back or away, its rows would be
        doubled."""
        tables = Tables(self._tables)
        logs = {each: positions[each] for each in positions if state_log(each) is not None}
        moves = _forward_moves(_log_positions(tables, [*logs]), logs)
        if moves:
            _skip_records(tables, moves)
        others = {each: positions[each] for each in positions if each not in logs}
        if others:
            ConnectorPositions(tables, connector).move(others)


def _forward_moves(
    present: Mapping[SourcePartition, int], wanted: Mapping[SourcePartition, Position | None]
) -> dict[SourcePartition, int]:
    """The positions that change. Raises InputError when one would go back."""
    moves = {}
    for source_partition, position in wanted.items():
        before = present.get(source_partition)
        if before is None and position is not None:
            raise InputError(
                f"nothing of {source_partition} is exported yet: there is no position to move",
                hint="resume the connector, and stop it once it has committed",
            )
        if before is not None and (not isinstance(position, int) or position < before):
            raise InputError(
                f"the tables have the records of {source_partition} up to {before}: reading them again would double "
                "them",
                hint="export into tables under another root to read a log again",
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
