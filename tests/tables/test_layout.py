"""How files of tables are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS, TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.records.record_files import quarantined_records, record_at
from acktrail.tables.upkeep.file_rewrite import commit_rewrite, rewrite

COMMITS = 6
NAME = "reset_executions"


def test_bounds_in_the_log_hold_long_texts(tmp_path: Path) -> None:
    """Texts are cut off in the log, a greatest one upwards. Every row is found by its group id, compacted or not."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    groups = ["a" * 40, "b" * 31 + "\U0010ffff" * 9, "ü" * 40, "c" * 10_000, None]
    for number, group_id in enumerate(groups):
        tables.append("state_records", [{"offset": number, "group_id": group_id}])
    log = sorted((tmp_path / "state_records" / "_delta_log").glob("*.json"))[1:]
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    bounds = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
    for group_id, bound in zip(groups, bounds, strict=True):
        assert bound["nullCount"]["group_id"] == (group_id is None)
        least, greatest = (bound[side].get("group_id") for side in ("minValues", "maxValues"))
        assert group_id is None or least.encode() <= group_id.encode() <= greatest.encode()
        assert len(greatest or "") <= 40
    for compacted in (False, True):
        snapshot = tables.snapshot("state_records")
        assert snapshot is not None
        assert len(snapshot.files()) == (1 if compacted else len(groups))
        for number, group_id in enumerate(groups[:-1]):
            found = snapshot.read(columns=["offset"], where=pc.field("group_id") == group_id)
            assert found["offset"].to_pylist() == [number]
        if not compacted:
            assert commit_rewrite(tables, "state_records", rewrite(snapshot, snapshot.files()), what="test")


def test_rows_keep_their_order_over_row_groups_and_pieces(tmp_path: Path) -> None:
    """Rows that lie in many pieces of memory are one file, in their order; its row groups are bounded."""
    piece = pa.Table.from_pylist([{"offset": 1, "batches": []}, {"offset": 2}] * 100, schema=STATE_RECORDS)
    rows = pa.concat_tables([piece] * 400)
    index = rows.column_names.index("offset")
    rows = rows.set_column(index, rows.schema.field(index), pa.array(range(80_000)))
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    tables.append("state_records", rows)
    (file,) = (tmp_path / "state_records").glob("*.parquet")
    assert pq.read_table(file, columns=["offset"])["offset"].to_pylist() == list(range(80_000))
    assert [pq.ParquetFile(file).metadata.row_group(each).num_rows for each in (0, 1)] == [16_384, 16_384]
    assert tables.read("state_records")["batches"].null_count == 40_000


@pytest.fixture
def two_partitions(tmp_path: Path) -> Tables:
    """Two state partitions in one file a commit, ten records of each; one record in quarantine."""
    found = Tables(TablesConfig(uri=str(tmp_path)))
    for commit in range(COMMITS):
        rows: list[dict[str, Any]] = [
            {"state_partition": part, "offset": offset, "value": b"v%d" % offset, "decode_status": "decoded"}
            for part in range(2)
            for offset in range(commit * 10, commit * 10 + 10)
        ]
        if commit == 2:
            rows[3] |= {"decode_status": "malformed_value", "decode_error": "too short"}
        found.append("state_records", rows)
    return found


def test_no_other_file_is_opened(two_partitions: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every other data file destroyed the record is still found, and the one that could not be decoded, without a
    dataset of all files, which takes seconds where they are thousands. Past the end of a log, and elsewhere, there is
    none."""
    monkeypatch.delattr(TableSnapshot, "dataset")
    snapshot = two_partitions.snapshot("state_records")
    assert snapshot is not None
    bounds = snapshot.statistics(["min.offset", "max.offset"])
    (path,) = [name for name, own in bounds.items() if own["min.offset"] <= 23 <= own["max.offset"]]
    for file in Path(two_partitions.root, "state_records").glob("*.parquet"):
        if file.name != path:
            file.write_bytes(b"no parquet")
    row = record_at(two_partitions, 1, 24)
    assert row is not None
    assert row["value"] == b"v24"
    assert record_at(two_partitions, 0, COMMITS * 10) is None
    assert record_at(two_partitions, 2, 5) is None
    (row,) = quarantined_records(two_partitions).to_pylist()
    assert (row["state_partition"], row["offset"], row["decode_error"]) == (0, 23, "too short")


def updated(table: DeltaTable) -> None:
    """As an UPDATE leaves it: delta-rs rewrites the files, text becomes views."""
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.update(updates={"cluster_id": "'c1'"}, predicate="partition < 3")


def large(table: DeltaTable) -> None:
    """As engines write it that know only large text."""
    rows = table.to_pyarrow_table()
    wide = pa.schema([pa.field(f.name, pa.large_string() if f.type == pa.string() else f.type) for f in rows.schema])
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    write_deltalake(table, rows.cast(wide), mode="overwrite")


@pytest.mark.parametrize("rewrite", [updated, large])
def test_rows_are_found_by_text(tmp_path: Path, rewrite: Callable[[DeltaTable], None]) -> None:
    """Equality, one of several, null: the same rows before and after, at once and piece by piece, from old files and
    from rewritten ones."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    for number in range(4):
        groups = [{"plan_id": f"p{number % 2}", "group_id": f"g{n}", "partition": number} for n in range(3)]
        tables.append(NAME, [*groups, {"plan_id": "p0", "partition": number}])
    questions = [
        pc.field("plan_id") == "p1",
        pc.field("group_id").isin(["g0", "g2"]),
        pc.field("group_id").is_null(),
        (pc.field("plan_id") == "p0") & (pc.field("partition") == 3),
        None,
    ]

    def answers() -> list[tuple[list[object], list[object]]]:
        snapshot = tables.snapshot(NAME)
        assert snapshot is not None
        columns = ["plan_id", "partition"]
        return [
            (
                sorted(snapshot.read(columns=columns, where=where).to_pylist(), key=str),
                sorted((row for b in snapshot.batches(columns=columns, where=where) for row in b.to_pylist()), key=str),
            )
            for where in questions
        ]

    before = answers()
    assert all(read == batches for read, batches in before)
    assert [len(read) for read, _ in before] == [6, 8, 4, 1, 16]
    rewrite(DeltaTable(str(tmp_path / NAME)))
    assert answers() == before
    kinds = {str(pq.read_schema(file).field("plan_id").type) for file in (tmp_path / NAME).glob("*.parquet")}
    assert kinds >= {"string", {updated: "string_view", large: "large_string"}[rewrite]}
    assert tables.rows(NAME)[0].keys() == set(TABLES[NAME].names)
