"""The tables that a maintenance looks after: acktrail's own, and those that connectors made under the same root."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow.fs as fs

from acktrail.branches import looks
from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import POSITIONED_TABLES, TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import CHANGES
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import RANGES_TABLE
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.sinks.open_tables import MADE_BY, OF_CONNECTOR, OpenTables, is_table_name

_BY_SMALL_FILES: Final = frozenset(
    {
        RECORDS,
        RANGES_TABLE,
        "group_observations",
        "offset_observations",
        "share_partition_states",
        "reconciliations",
        "quality_results",
        "run_totals",
        "status_changes",
        "notifications",
        "connector_positions",
        *POSITIONED_TABLES,
        *looks(),
        *CHANGES,
    }
)


def grows_by_small_files(name: str) -> bool:
    """Whether the files of a table are written again as few. Of acktrail's own, some are replaced as a whole, or order
    their files themselves; every table of a connector grows so."""
    return name in _BY_SMALL_FILES or name not in TABLES


class MaintainedTables(Tables):
    """Tables that also knows those of connectors by name; a table that someone else put under the root is left alone.
    Raises as ``Tables``."""

    def __init__(self, config: TablesConfig) -> None:
        super().__init__(config)
        self._of_connectors = frozenset(self._found())

    def place(self, name: str) -> TablePlace:
        """Where the files of a table lie."""
        return TablePlace(name=name, root=self._root) if name in self._of_connectors else super().place(name)

    def snapshots(self) -> Iterator[TableSnapshot]:
        """Every table that is there: acktrail's own first."""
        return filter(None, map(self.snapshot, (*TABLES, *sorted(self._of_connectors))))

    def _found(self) -> Iterator[str]:
        """Tables under the root that a connector's sink created."""
        with self._root.translated():
            infos = self._root.storage().get_file_info(fs.FileSelector("", allow_not_found=True))
        names = (info.base_name for info in infos if info.type == fs.FileType.Directory)
        opened = OpenTables(self.config)
        for name in names:
            if name not in TABLES and is_table_name(name):
                found = opened.snapshot(name)
                if found is not None and found.properties.get(MADE_BY) == OF_CONNECTOR:
                    yield name
