"""Keys that were read beside an audit: its rows are the newer ones, and stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.tables.delta.store import Tables
from acktrail_expansion.branch import STEP
from acktrail_expansion.keys import key_reading

FENCES = key_reading.FENCES


def audited(tables: Tables, step: int) -> None:
    """A fence as the audit of the look `step` writes it."""
    row = {"event_id": "e", "partition": 0, "fence_low": step}
    rows = pa.Table.from_pylist([row], schema=TABLES[FENCES])
    tables.replace(FENCES, rows, transactions={STEP: step})


def test_what_keys_show_never_replaces_the_rows_of_a_later_audit(tmp_path: Path) -> None:
    """Without one it is written; with one nothing is, and that is said."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "t")))
    audited(tables, 1)
    key_reading._put(tables, FENCES, "e", [{"event_id": "e", "partition": 0, "fence_low": 1, "fence_exact": 1}], 1)
    assert [row["fence_exact"] for row in tables.rows(FENCES)] == [1]
    audited(tables, 2)
    with pytest.raises(ConcurrentCommit):
        key_reading._put(tables, FENCES, "e", [{"event_id": "e", "partition": 0, "fence_low": 1, "fence_exact": 1}], 1)
    assert [(row["fence_low"], row["fence_exact"]) for row in tables.rows(FENCES)] == [(2, None)]
