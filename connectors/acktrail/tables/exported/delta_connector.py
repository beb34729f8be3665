"""``DeltaSink`` as a person configures it: Delta tables under one root."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, Importance, NonEmpty
from acktrail.connect.config_values import ConfigType, under
from acktrail.connect.contract import Config, LeaseTerms, SinkConnector, SinkTask, SinkTaskContext, WorkLease
from acktrail.connect.source_batches import LogMark, Position, SourcePartition, state_log
from acktrail.errors import InputError
from acktrail.secrets import resolved_properties
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.exported.skipped_records import skip_records
from acktrail.tables.exported.stored_log import StoredRecords
from acktrail.tables.lease import WorkerLease, since_boot_s
from acktrail.tables.sinks.any_table_sink import AnyTableSink
from acktrail.tables.sinks.connector_positions import ConnectorPositions

_TABLES: Final = "tables"
_FILE: Final = "tables.options"
_OPTION: Final = "option."
_RENEWALS: Final = 3

TABLES_KEYS: Final = ConfigDef(
    [
        ConfigKey(
            name=_TABLES,
            type=ConfigType.STRING,
            documentation="Root of the tables: a folder or a URI such as s3://bucket/prefix.",
            importance=Importance.HIGH,
            validator=NonEmpty(),
            group="Tables",
        ),
        ConfigKey(
            name=_FILE,
            type=ConfigType.STRING,
            default=None,
            documentation="A file with key=value lines for the object storage; options given here win over it.",
            group="Tables",
        ),
    ],
    {_OPTION: "any option of the object storage: aws_region, aws_endpoint_url, aws_access_key_id ..."},
)


def tables_config(config: Config) -> TablesConfig:
    """Where the tables of a sink's parsed configuration are. Raises ConfigurationError when the file cannot be read."""
    file = config[_FILE]
    options = {} if file is None else resolved_properties(Path(file))
    options |= {name: str(value) for name, value in under(config, _OPTION).items()}
    return TablesConfig(uri=config[_TABLES], options=options)


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
        return _TablesLease(self._tables, terms)

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
        logs = {each: position for each, position in positions.items() if state_log(each) is not None}
        others = {each: position for each, position in positions.items() if each not in logs}
        tables = Tables(self._tables)
        moves = _forward_moves(_log_positions(tables, list(logs)), logs)
        if moves:
            skip_records(tables, moves)
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


class _TablesLease:
    """A `WorkerLease` that is written three times in its life, however often it is asked for."""

    def __init__(self, config: TablesConfig, terms: LeaseTerms) -> None:
        self._lease = WorkerLease(config, terms.connector, owner=terms.owner, ttl_s=terms.ttl_s)
        self._renew_s = terms.ttl_s / _RENEWALS
        self._renewed_at = -math.inf
        self.holder = ""

    def acquire(self) -> bool:
        now = since_boot_s()
        if self._lease.is_held and now - self._renewed_at < self._renew_s:
            return True
        if self._lease.acquire():
            self._renewed_at = now
            return True
        found = self._lease.held_by()
        self.holder = "another worker" if found is None else found.owner
        return False

    def release(self) -> None:
        self._renewed_at = -math.inf
        self._lease.release()
