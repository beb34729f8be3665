"""``DeltaTableSource`` as a person configures it: one Delta table, followed commit by commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.connect.config_def import Between, ConfigDef, ConfigKey, Importance, OneOf
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError
from acktrail.tables.delta.table_place import TablePlace, table_root
from acktrail.tables.storage_keys import TABLES_KEYS, tables_config
from acktrail_plugins.table_source.table_task import TablePosition, TableReading, TableTask

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KIND: Final = "delta/"
_MS: Final = 1_000


class _TableName:
    def __call__(self, _name: str, value: Any) -> None:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ValueError("it must be the name of a folder under the root: letters, digits, '_', '.' and '-'")

    def __str__(self) -> str:
        return "name of a folder"


def _key(name: str, kind: ConfigType, default: Any, documentation: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, documentation=documentation, group="Reading", **more)


SOURCE_KEYS: Final = TABLES_KEYS.with_keys(
    ConfigDef(
        [
            ConfigKey(
                name="table",
                type=ConfigType.STRING,
                documentation="The table to follow. One that is not there yet is waited for.",
                importance=Importance.HIGH,
                validator=_TableName(),
                group="Reading",
            ),
            _key(
                "start",
                ConfigType.STRING,
                "beginning",
                "Where the first start begins: with the table's first commit, or behind its newest one.",
                validator=OneOf(("beginning", "end")),
            ),
            _key(
                "updates",
                ConfigType.STRING,
                "refuse",
                "What a commit that removes or changes rows does. refuse: it fails the task. rewritten: the rows of "
                "the files that it wrote are given, unchanged ones among them.",
                validator=OneOf(("refuse", "rewritten")),
            ),
            _key(
                "batch.rows",
                ConfigType.INT,
                10_000,
                "The most rows of a batch: a sink takes or refuses a batch as a whole.",
                validator=Between(least=1),
            ),
            _key(
                "interval.ms",
                ConfigType.LONG,
                1_000,
                "How often the storage is asked for a new commit when there was none.",
                validator=Between(least=1),
            ),
            _key("bounded", ConfigType.BOOLEAN, "false", "End with the commit that was the newest at the start."),
        ]
    )
)


class DeltaTableSource(SourceConnector):
    """Gives the rows of a Delta table as they are appended, in the order of its commits."""

    description = "Rows of one Delta table as they are appended, in commit order."
    config_def: ClassVar[ConfigDef] = SOURCE_KEYS

    def __init__(self, config: Config) -> None:
        super().__init__(config)
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
