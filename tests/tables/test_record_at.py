"""One state record by its address: found in the file that has it, and no other file is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import files_with, quarantined_records, record_at

COMMITS = 6


def record(state_partition: int, offset: int, **changes: Any) -> dict[str, Any]:
    own = {
        "state_partition": state_partition, "offset": offset, "key": b"k", "value": b"v%d" % offset,
        "timestamp_ms": offset, "decode_status": "decoded",
    }  # fmt: skip
    return {name: (own | changes).get(name) for name in TABLES["state_records"].names}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Two state partitions in one file a commit, ten records of each; one record in quarantine."""
    found = Tables(TablesConfig(uri=str(tmp_path)))
    for commit in range(COMMITS):
        rows = [record(part, commit * 10 + n) for part in range(2) for n in range(10)]
        if commit == 2:
            rows[3] |= {"decode_status": "malformed_value", "decode_error": "too short"}
        found.append("state_records", pa.Table.from_pylist(rows, schema=TABLES["state_records"]))
    return found


def test_every_record_is_found_by_its_address(tables: Tables) -> None:
    """The row is the one with this partition and offset; past both ends, and elsewhere, there is none."""
    for part, offset in ((0, 0), (1, 27), (1, COMMITS * 10 - 1)):
        row = record_at(tables, part, offset)
        assert row is not None
        assert (row["state_partition"], row["offset"], row["value"]) == (part, offset, b"v%d" % offset)
    assert record_at(tables, 0, COMMITS * 10) is None
    assert record_at(tables, 2, 5) is None


def test_no_other_file_is_opened(tables: Tables) -> None:
    """With every other data file destroyed the record is still found, and the one that could not be decoded."""
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    (path,) = files_with(snapshot, 0, 23)
    for file in Path(tables.root, "state_records").glob("*.parquet"):
        if file.name != path:
            file.write_bytes(b"no parquet")
    row = record_at(tables, 1, 24)
    assert row is not None
    assert row["value"] == b"v24"
    (row,) = quarantined_records(tables).to_pylist()
    assert (row["state_partition"], row["offset"], row["decode_error"]) == (0, 23, "too short")


def test_a_table_that_was_never_made_has_no_record(tmp_path: Path) -> None:
    """Nothing was exported: no record, none in quarantine, no commit."""
    nothing = Tables(TablesConfig(uri=str(tmp_path)))
    assert record_at(nothing, 0, 0) is None
    assert quarantined_records(nothing).num_rows == 0
