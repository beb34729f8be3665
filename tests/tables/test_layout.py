"""How files of tables are written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables


def test_statistics_are_kept_of_what_is_sought(tmp_path: Path) -> None:
    """A state record's file has least and greatest values of its address, and none of its bytes and batches."""
    batch = {"first_offset": 1, "last_offset": 2, "delivery_state": 2, "delivery_count": 1}
    row = {"state_partition": 1, "offset": 5, "key": b"k", "value": b"v", "group_id": "g", "batches": [batch]}
    Tables(TablesConfig(uri=str(tmp_path))).append("state_records", pa.Table.from_pylist([row], schema=STATE_RECORDS))
    (file,) = (tmp_path / "state_records").glob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    kept = {column.path_in_schema for column in columns if column.statistics and column.statistics.has_min_max}
    assert {"state_partition", "offset", "group_id"} <= kept
    assert not [name for name in kept if name in {"key", "value"} or name.startswith("batches.")]
