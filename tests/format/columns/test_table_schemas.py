"""Columns of tables are read from docs/tables.md."""

import pytest

from acktrail.format.columns.schemas.table_schemas import parse_tables


@pytest.mark.parametrize("cell", ["`a`: text", "`a`", "`a`, b: string", "`a`: list of {`b`}", "`a`: string `b`: int32"])
def test_columns_that_cannot_be_read_are_refused(cell: str) -> None:
    """No column is left out silently."""
    with pytest.raises(ValueError, match=r"tables\.md: no"):
        parse_tables(f"## topics\n\n| {cell} | what |\n")
