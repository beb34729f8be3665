"""Tables that another engine rewrote are read as before, in each of its forms of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables

NAME = "reset_executions"


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
