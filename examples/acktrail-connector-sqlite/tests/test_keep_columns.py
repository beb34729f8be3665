"""The transform keeps what every transform promises."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from acktrail_connect.testing import TransformSuite
from acktrail_connector_sqlite.keep_columns import KeepColumns


class TestKeepColumns(TransformSuite):
    """Everything that ``acktrail_connect.testing`` asks of a transform."""

    connector_class = KeepColumns

    def config(self) -> Mapping[str, str]:
        return {"columns": "number,none", "tables": "numbers"}

    def tables(self) -> Mapping[str, pa.Table]:
        rows = pa.table({"number": [1, 2], "word": ["a", None]})
        return {"numbers": rows, "others": rows}


def test_only_named_columns_of_named_tables_are_kept() -> None:
    """Other tables pass whole."""
    rows = pa.table({"number": [1], "word": ["a"]})
    transform = KeepColumns({"columns": ["number"], "tables": ["numbers"]})
    assert [transform.apply(name, rows)[1].column_names for name in ("numbers", "others")] == [
        ["number"],
        ["number", "word"],
    ]
