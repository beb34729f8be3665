"""A table explains itself: every column has its meaning in Delta, and the table its question,
whether its columns are stable, and what a row is."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_comments import GRAINS, STABILITY
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_engine_is_told_what_a_column_means(name: str, tmp_path: Path) -> None:
    """By the comments of the stored schema, without the links of the page."""
    Tables(TablesConfig(uri=str(tmp_path))).create(name)
    stored = DeltaTable(tmp_path / name)
    comments = {field.name: field.metadata.get("comment") for field in stored.schema().fields}
    question, said = (stored.metadata().description or "").split("? ")
    stability, grain = said.split("; ")
    assert question
    assert stability in STABILITY
    assert grain in GRAINS.values()
    assert [column for column in TABLES[name].names if not comments[column]] == []
    assert not any("](" in (comment or "") for comment in comments.values())
