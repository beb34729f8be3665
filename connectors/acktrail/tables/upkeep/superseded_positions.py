"""Rows of ``connector_positions`` that no reader needs any more.

A source partition's position is the one whose number its table has, or a later one without a table. Rows before it are
only its past: they go when files are written again. What was written ahead of it stays.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.sinks.connector_positions import POSITIONS, ConnectorPositions
from acktrail.tables.upkeep.file_rewrite import Change

_KEY: Final = ("connector", "source_partition")
_LEAST: Final = "least"


def without_superseded(tables: Tables) -> Change:
    """A change that leaves out rows which are superseded now. Later rows are never among them, so commits may come
    before it is used. Raises DamagedTables (a position that counts is missing)."""
    least = _least_needed(tables)

    def change(rows: pa.Table) -> pa.Table:
        keyed = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        joined = keyed.select([*_KEY, "number", "row"]).join(least, keys=list(_KEY), join_type="left outer")
        is_kept = pc.fill_null(pc.greater_equal(joined["number"], joined[_LEAST]), fill_value=True)
        return rows.take(joined.filter(is_kept).sort_by("row")["row"])

    return change


def _least_needed(tables: Tables) -> pa.Table:
    """By connector and source partition, the least number that is needed; none where no position counts."""
    stored = tables.read(POSITIONS, columns=[*_KEY, "number", "table"])
    grouped = stored.filter(stored["table"].is_valid()).group_by(list(_KEY), use_threads=False)
    bound = grouped.aggregate([("number", "max")]).to_pylist()
    named = {(row["connector"], row["source_partition"]): row["number_max"] for row in bound}
    rows: list[dict[str, Any]] = []
    for connector in pc.unique(stored["connector"]).to_pylist():
        for source_partition, standing in ConnectorPositions(tables, connector).standings().items():
            if standing.counted is None:
                continue
            numbers = (standing.counted, standing.landed, named.get((connector, source_partition)))
            least = min(number for number in numbers if number is not None)
            rows.append({"connector": connector, "source_partition": str(source_partition), _LEAST: least})
    columns = [pa.field(name, pa.string()) for name in _KEY]
    return pa.Table.from_pylist(rows, schema=pa.schema([*columns, pa.field(_LEAST, pa.int64())]))
