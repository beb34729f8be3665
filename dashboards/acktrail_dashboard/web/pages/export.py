"""The export: positions of the state partitions, gaps, records in quarantine, sizes and freshness of the tables."""

from __future__ import annotations

from typing import Any, Final

from acktrail.errors import AcktrailError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import RECORDS, quarantined_records
from acktrail_dashboard.lists.export_list import (
    CONNECTORS_SHOWN,
    GAPS_SHOWN,
    POSITION_COLUMNS,
    TableSize,
    connector_lines,
    export_gaps,
    newest_of,
    partition_positions,
    quarantined_page,
)
from acktrail_dashboard.web.web_page import Visit, WebPage


def _export(visit: Visit) -> dict[str, Any]:
    ranges = visit.read("export_ranges", columns=POSITION_COLUMNS)
    positions, gaps = partition_positions(ranges), export_gaps(ranges)
    quarantined = visit.ask(RECORDS, quarantined_records, None)
    sizes: tuple[TableSize, ...] = visit.ask(RECORDS, table_sizes, ())
    columns = ("connector", "source_partition", "number", "position", "at")
    connectors = connector_lines(visit.read("connector_positions", columns=columns))
    behind = [position.behind for position in positions]
    return {
        "positions": positions,
        "exported_at": newest_of(position.exported_at for position in positions),
        "behind": None if None in behind or not behind else sum(each or 0 for each in behind),
        "gaps": gaps[:GAPS_SHOWN],
        "gap_count": len(gaps),
        "lost": [gap for gap in gaps if gap.tone == "critical"],
        "quarantined": () if quarantined is None else quarantined_page(quarantined),
        "quarantined_count": None if quarantined is None else quarantined.num_rows,
        "sizes": sizes,
        "bytes": sum(size.bytes for size in sizes),
        "connectors": connectors[:CONNECTORS_SHOWN],
        "connector_count": len(connectors),
    }


def table_sizes(tables: Tables) -> tuple[TableSize, ...]:
    """Every table that exists, by its log alone; one that cannot be read has its problem."""
    found = []
    for name in TABLES:
        try:
            size = _size(tables, name)
        except AcktrailError as error:
            size = TableSize(name=name, problem=error.message)
        found += [] if size is None else [size]
    return tuple(found)


def _size(tables: Tables, name: str) -> TableSize | None:
    snapshot = tables.followed(name)
    if snapshot is None:
        return None
    files = snapshot.files()
    rows = [file.rows for file in files]
    return TableSize(
        name=name,
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        rows=None if None in rows else sum(each or 0 for each in rows),
        version=snapshot.version,
        committed_at=snapshot.committed_at(),
    )


EXPORT: Final = WebPage(path="export", title="Export", template="export.html", context=_export, menu="Export")
