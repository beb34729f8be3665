"""``DeltaTableSource`` as a person configures it: one Delta table, followed commit by commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.connect.config_def import ConfigDef, keys_in
from acktrail.connect.contract import Config, SourceConnector
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError, InvalidConfiguration
from acktrail.tables.delta.table_place import TablePlace, table_root
from acktrail.tables.exported.delta_connector import TABLES_KEYS, tables_config
from acktrail_plugins.table_source.table_task import TablePosition, TableReading, TableTask

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KIND: Final = "delta/"
_MS: Final = 1_000


SOURCE_KEYS: Final = TABLES_KEYS.with_keys(keys_in(__package__, "table_keys.toml"))


class DeltaTableSource(SourceConnector):
    """Gives the rows of a Delta table as they are appended, in the order of its commits."""

    description = "Rows of one Delta table as they are appended, in commit order."
    config_def: ClassVar[ConfigDef] = SOURCE_KEYS

    def __init__(self, config: Config) -> None:
        """Raises InvalidConfiguration: the table's name could lead out of the root."""
        super().__init__(config)
        if not _NAME.fullmatch(config["table"]):
            message = "it must be the name of a folder under the root: letters, digits, '_', '.' and '-'"
            raise InvalidConfiguration({"table": (message,)})
        self._root = table_root(tables_config(config))

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # commits have one order
        return [{}]

    def task(self, config: Config) -> TableTask:  # noqa: ARG002  # there is one
        own = self.config
        return TableTask(
            TableReading(
                place=TablePlace(name=own["table"], root=self._root),
                source_partition=self._source_partition,
                from_end=own["start"] == "end",
                takes_rewritten=own["updates"] == "rewritten",
                is_bounded=own["bounded"],
                rows=own["batch.rows"],
                look_every_s=own["interval.ms"] / _MS,
            )
        )

    def source_partitions(self) -> Sequence[SourcePartition]:
        return [self._source_partition]

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """The table's name."""
        return {"table": source_partition.removeprefix(_KIND)}

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if dict(fields) != {"table": self.config["table"]}:
            raise InputError(
                f"the source partition of this connector is the object {{'table': {self.config['table']!r}}}"
            )
        return self._source_partition

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:  # noqa: ARG002  # there is one
        TablePosition.of(position)

    @property
    def _source_partition(self) -> SourcePartition:
        return SourcePartition(_KIND + self.config["table"])
