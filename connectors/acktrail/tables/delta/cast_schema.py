"""Rows in the columns a table has: missing ones are null, the rest in the table's own types and order."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["cast_to_schema"]


def cast_to_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`.

    Raises:
        ValueError: for a column that `schema` does not have.
    """
    unknown = set(rows.column_names) - set(schema.names)
    if unknown:
        raise ValueError(f"no such columns: {sorted(unknown)}")
    return pa.Table.from_arrays([_column(rows, field) for field in schema], schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    column = rows[field.name]
    return column if column.type.equals(field.type) else column.cast(field.type)
