"""What every transform promises: the same rows give the same result, and columns keep their types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from acktrail.connect.testing.connector_suite import ConnectorSuite


class TransformSuite(ConnectorSuite):
    """Set also ``tables``."""

    def tables(self) -> Mapping[str, pa.Table]:
        """Rows that the transform changes, and others, by table."""
        raise NotImplementedError

    def test_the_same_rows_give_the_same_result(self) -> None:
        """Applied by two objects, whole and row by row: after a restart batches are cut elsewhere."""
        for table, rows in self.tables().items():
            name, whole = self.connector().apply(table, rows)
            other, again = self.connector().apply(table, rows)
            assert (name, whole.to_pylist()) == (other, again.to_pylist())
            one = self.connector()
            singles = [one.apply(table, rows.slice(number, 1)) for number in range(rows.num_rows)]
            assert {each for each, _ in singles} <= {name}, "the table depends on how batches are cut"
            assert [row for _, part in singles for row in part.to_pylist()] == whole.to_pylist()

    def test_columns_keep_their_types(self) -> None:
        """A column that is left has the type that it had; empty batches pass."""
        for table, rows in self.tables().items():
            for part in (rows, rows.slice(0, 0)):
                _, changed = self.connector().apply(table, part)
                kept = [name for name in changed.column_names if name in rows.column_names]
                for name in kept:
                    assert changed.schema.field(name).type == rows.schema.field(name).type, f"{name} has another type"

    def test_rows_are_changed_in_a_copy(self) -> None:
        """What was given stays as it was."""
        for table, rows in self.tables().items():
            before = rows.to_pylist()
            self.connector().apply(table, rows)
            assert rows.to_pylist() == before
