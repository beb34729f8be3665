"""A transform that keeps some columns of some tables."""

from __future__ import annotations

import pyarrow as pa

from acktrail_connect.config_def import NON_EMPTY, ConfigDef, ConfigKey, ConfigType, Importance
from acktrail_connect.contract import Transform


class KeepColumns(Transform):
    """Keeps the named columns, in the order that they have."""

    description = "Keeps the named columns of the rows."
    config_def = ConfigDef(
        [
            ConfigKey(
                name="columns",
                type=ConfigType.LIST,
                documentation="The columns to keep; those that a table lacks are passed over.",
                importance=Importance.HIGH,
                validator=NON_EMPTY,
            ),
            ConfigKey(
                name="tables",
                type=ConfigType.LIST,
                default="",
                documentation="The tables whose columns are left out; empty: all of them.",
            ),
        ]
    )

    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        if self.config["tables"] and table not in self.config["tables"]:
            return table, rows
        return table, rows.select([name for name in rows.column_names if name in self.config["columns"]])
