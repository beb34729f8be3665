"""``DeltaSink`` as a person configures it: Delta tables under one root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, ConfigType, Importance, NonEmpty, under
from acktrail.connect.contract import Config, SinkConnector, SinkTask, SinkTaskContext
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError
from acktrail.secrets import resolved_properties
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.sinks.any_table_sink import AnyTableSink
from acktrail.tables.sinks.connector_positions import ConnectorPositions

_TABLES: Final = "tables"
_FILE: Final = "tables.options"
_OPTION: Final = "option."
_STATE: Final = "state/"

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

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """Those of logs cannot be moved: rows would be doubled, or be missing without a recorded gap."""
        tables = Tables(self._tables)
        for source_partition, before in _log_positions(tables, list(positions)).items():
            raise InputError(
                f"the tables have the records of {source_partition} up to {before}: reading them again would double "
                "them, leaving some out would hide a gap",
                hint="export into tables under another root to read a log again",
                data={"source_partition": str(source_partition), "position": before},
            )
        own = ConnectorPositions(tables, connector)
        known = own.standings(list(positions))
        if any(each.startswith(_STATE) and each not in known for each in positions):
            super().alter_positions(connector, positions)
        own.move(positions)


def _log_positions(tables: Tables, wanted: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
    snapshot = tables.snapshot("state_records")
    found = {} if snapshot is None else {each: snapshot.transaction_version(each) for each in wanted}
    return {each: number for each, number in found.items() if number is not None}
