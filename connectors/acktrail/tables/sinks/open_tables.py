"""Delta tables whose names and columns come from a source: names are checked, columns only grow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, Schema, WriterProperties, write_deltalake

from acktrail.errors import ConcurrentCommit, RowsRefused
from acktrail.format.columns.schemas.table_schemas import POSITIONED_TABLES, TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_commit import check_expected, commit
from acktrail.tables.delta.table_snapshot import TableSnapshot

MADE_BY: Final = "made_by"
"""The property of a table that a sink created; one that was there before belongs to someone else."""
OF_CONNECTOR: Final = "connector"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)*")
_LONGEST_NAME: Final = 128
_NEXT: Final = "rename it with the transform Route"


def is_table_name(name: str) -> bool:
    """Whether a sink may create a table of this name."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def check_table_name(name: str, rows: pa.Schema | None = None) -> None:
    """Pass for a name that is one folder on every storage and collides with no other: small letters (to some storages
    ``A`` is ``a``), digits, ``_``, and single ``-`` and ``.`` between them. Raises RowsRefused, also for the
    names of acktrail's own tables, unless the table is one of ``POSITIONED_TABLES`` and `rows` has its columns."""
    if not is_table_name(name):
        raise RowsRefused(
            f"{name[:_LONGEST_NAME]!r} cannot be the name of a table",
            hint=f"small letters, digits and _, with . and - between them, at most {_LONGEST_NAME}; {_NEXT}",
        )
    if name in TABLES and not (name in POSITIONED_TABLES and rows is not None and rows.equals(TABLES[name])):
        raise RowsRefused(f"the table {name} is acktrail's own: rows of this source do not belong there", hint=_NEXT)


def stored_schema(rows: pa.Schema) -> pa.Schema:
    """`rows` as a Delta table keeps them, without columns that have no type. Raises RowsRefused when it cannot keep
    one, or when two names differ in their case alone."""
    found: dict[str, str] = {}
    for name in rows.names:
        other = found.setdefault(name.casefold(), name)
        if rows.names.count(name) > 1 or other != name:
            raise RowsRefused(f"the columns {other!r} and {name!r} are one to Delta", hint="rename one of them")
    return pa.schema([_stored(field) for field in rows if not pa.types.is_null(field.type)])


def fitted(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """`rows` in the types that are stored: the columns of `schema`, then new ones. Raises RowsRefused when a column has
    another type than `schema`, or a value that does not fit."""
    own = stored_schema(rows.schema)
    by_case = {name.casefold(): name for name in schema.names}
    for field in own:
        name = by_case.get(field.name.casefold())
        if name is not None and name != field.name:
            raise RowsRefused(f"the column {field.name!r} of {table} is {name!r} there", hint="rename it")
        if name is not None and not schema.field(name).type.equals(field.type):
            raise RowsRefused(
                f"the column {name!r} of {table} is {schema.field(name).type}, not {field.type}",
                hint="a column keeps its type: give the new values another column, or rename the table with Route",
                data={"table": table, "column": name},
            )
    whole = pa.schema([*schema, *(field for field in own if field.name not in schema.names)])
    try:
        columns = [
            rows[field.name].cast(field.type)
            if field.name in own.names
            else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            for field in whole
        ]
    except pa.ArrowInvalid as error:
        raise RowsRefused(f"a value does not fit into {table}: {error}") from error
    return pa.Table.from_arrays(columns, schema=whole)


def of_connector(tables: Tables, name: str, schema: pa.Schema) -> TableSnapshot:
    """The table `name` of a connector, created with `schema` (of ``stored_schema``) if it does not exist."""
    tables.admit(name)
    return tables.create(name, schema=schema, properties={MADE_BY: OF_CONNECTOR})


def append_growing(
    snapshot: TableSnapshot,
    rows: pa.Table,
    transactions: Mapping[str, int],
    expected: Mapping[str, int | None],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One commit of rows of any columns; those that the table lacks are added to it. All else as ``Tables.append``."""
    check_expected(snapshot, expected)

    def write(properties: CommitProperties) -> None:
        write_deltalake(
            snapshot.delta,
            rows.combine_chunks(),  # it writes chunks in any order
            mode="append",
            schema_mode="merge",
            writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
            commit_properties=properties,
        )

    commit(snapshot, write, transactions, metadata)


def schema_of(snapshot: TableSnapshot | None) -> pa.Schema:
    """The stored columns; of a table that is not there: none."""
    return pa.schema([]) if snapshot is None else pa.schema(snapshot.delta.schema().to_arrow())


def refitted(rows: pa.Table, snapshot: TableSnapshot) -> pa.Table:
    """Rows that were fitted before, to the columns that are stored now. Raises ConcurrentCommit when another writer
    gave one of them another type meanwhile."""
    try:
        return fitted(rows, schema_of(snapshot), snapshot.name)
    except RowsRefused as error:
        raise ConcurrentCommit(f"another writer changed the columns of {snapshot.name} first") from error


def _stored(field: pa.Field) -> pa.Field:
    if pa.types.is_timestamp(field.type) and field.type.unit == "ns":  # only a reader of today takes these
        field = field.with_type(pa.timestamp("us", tz=field.type.tz))
    try:
        delta = Schema.from_arrow(pa.schema([field.with_nullable(True)]))  # noqa: FBT003  # pyarrow's signature
        return pa.schema(delta.to_arrow()).field(0)
    except Exception as error:  # delta-rs raises a bare one
        raise RowsRefused(
            f"a Delta table has no type for the column {field.name!r}: {field.type}", hint="convert it in the source"
        ) from error
