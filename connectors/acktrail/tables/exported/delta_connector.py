"""``DeltaSink`` as a person configures it: Delta tables under one root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, ConfigType, Importance, NonEmpty, under
from acktrail.connect.contract import Config, SinkConnector, SinkTaskContext
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError
from acktrail.secrets import resolved_properties
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink

_TABLES: Final = "tables"
_FILE: Final = "tables.options"
_OPTION: Final = "option."

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
    """Writes Delta tables, rows and positions in one commit."""

    description = "Delta tables on object storage, exactly once."
    config_def: ClassVar[ConfigDef] = TABLES_KEYS
    takes_transformed_logs = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tables = tables_config(config)

    def start(self) -> None:
        """Check that tables can be created under the root."""
        Tables(self._tables).prepare()

    def task(self, context: SinkTaskContext) -> DeltaSink:
        return DeltaSink(Tables(self._tables), cluster_id=context.cluster_id or "", run_id=context.run_id)

    def positions(
        self,
        connector: str,  # noqa: ARG002  # all exports of a log share its position
        source_partitions: Sequence[SourcePartition],
    ) -> Mapping[SourcePartition, Position]:
        """Of logs: the numbers that their commits carry."""
        snapshot = Tables(self._tables).snapshot("state_records")
        if snapshot is None:
            return {}
        found = {each: snapshot.transaction_version(each) for each in source_partitions}
        return {each: number for each, number in found.items() if number is not None}

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """A log can only be moved forward, past records that are then a recorded gap; back or away, its rows would be
        doubled."""
        present = self.positions(connector, list(positions))
        for source_partition, position in positions.items():
            before = present.get(source_partition)
            if before is not None and (
                not isinstance(position, int) or not isinstance(before, int) or position < before
            ):
                raise InputError(
                    f"the tables have the records of {source_partition} up to {before}: reading them again would "
                    "double them",
                    hint="export into tables under another root to read a log again",
                    data={"source_partition": str(source_partition), "position": before},
                )
        super().alter_positions(connector, positions)
