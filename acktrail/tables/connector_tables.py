"""What connectors of any kind have of the tables: keys that say where these are, names and columns that a table may
have, and positions that are no log's, numbers or JSON.

A Delta commit carries one whole number for each app id. So each position gets a number that only ever grows, and stands
in ``connector_positions`` under it before the rows are committed; the commit of the rows has that number as the app
id's. The number that the rows' table has says which position counts: one that a crash left behind has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import Schema

from acktrail.dataclass_json import stored_value
from acktrail.errors import DamagedTables, RowsRefused
from acktrail.format.columns.schemas.table_schemas import POSITIONED_TABLES, TABLES
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.delta.table_snapshot import TableSnapshot

POSITIONS: Final = "connector_positions"
_TABLE_KEY: Final = b"table"
_LOOKS: Final = 5
_COLUMNS: Final = ("source_partition", "number", "table", "position")
MADE_BY: Final = "made_by"
"""The property of a table that a sink created; one that was there before belongs to someone else."""
OF_CONNECTOR: Final = "connector"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)*")
_LONGEST_NAME: Final = 128
_NEXT: Final = "rename it with the transform Route"


def app_id(connector: str, source_partition: SourcePartition) -> str:
    """Whose number a commit carries. The connector's name is quoted: a slash in it makes no other connector."""
    return f"connect/{quote(connector, safe='')}/{source_partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a source partition is. `newest` is the newest number written ahead, `landed` the one that the rows' `table`
    has; None: none. `table` None: it has none yet, or no rows so far."""

    position: Position | None = None
    newest: int | None = None
    landed: int | None = None
    table: str | None = None
    counted: int | None = None
    """The number of `position`."""
    is_whole: bool = True
    """The position of `landed` is there."""


class ConnectorPositions:
    """Where the source partitions of `connector` are. Raises as ``Tables``."""

    def __init__(self, tables: Tables, connector: str) -> None:
        self._tables, self._connector = tables, connector

    def app_id(self, source_partition: SourcePartition) -> str:
        return app_id(self._connector, source_partition)

    def standings(self, wanted: Sequence[SourcePartition] | None = None) -> dict[SourcePartition, Standing]:
        """Of the source partitions that have one; None: of all. Raises DamagedTables when a table has a number whose
        position is not there."""
        for _ in range(_LOOKS):
            found = self._look(wanted)
            lost = [each for each in found.values() if each.landed is not None and not each.is_whole]
            if not lost:
                return found
        raise DamagedTables(
            f"{POSITIONS} lost the position that goes with commit {lost[0].landed} of {self._connector} to "
            f"{lost[0].table}",
            hint="use another name and other tables for the connector: nothing shows which of its rows are committed",
            table=POSITIONS,
        )

    def _look(self, wanted: Sequence[SourcePartition] | None) -> dict[SourcePartition, Standing]:
        """The positions, and then the rows' tables: these may be newer."""
        snapshot = self._tables.snapshot(POSITIONS)
        if snapshot is None:
            return {}
        own: dict[str, Any] = {"connector": self._connector}
        if wanted is not None:
            own["source_partition"] = [str(each) for each in wanted]
        by_partition: dict[SourcePartition, list[dict[str, Any]]] = {}
        for row in snapshot.rows(own, columns=_COLUMNS):
            by_partition.setdefault(SourcePartition(row["source_partition"]), []).append(row)
        tables: dict[str, TableSnapshot | None] = {}
        return {each: self._standing(snapshot, each, rows, tables) for each, rows in by_partition.items()}

    def _standing(
        self,
        snapshot: TableSnapshot,
        source_partition: SourcePartition,
        rows: Sequence[Mapping[str, Any]],
        tables: dict[str, TableSnapshot | None],
    ) -> Standing:
        own = self.app_id(source_partition)
        ordered = sorted(rows, key=lambda row: int(row["number"]))
        table = next((row["table"] for row in reversed(ordered) if row["table"] is not None), None)
        if table is not None and table not in tables:
            self._tables.admit(table)
            tables[table] = self._tables.snapshot(table)
        stored = None if table is None else tables[table]
        landed = None if stored is None else stored.transaction_version(own)
        counts = [row for row in ordered if row["table"] is None or row["number"] == landed]
        text = counts[-1]["position"] if counts else None
        return Standing(
            position=None if text is None else stored_value(text, POSITIONS, "position", int, dict),
            newest=snapshot.transaction_version(own),
            landed=landed,
            table=table,
            counted=int(counts[-1]["number"]) if counts else None,
            is_whole=any(row["number"] == landed for row in ordered),
        )


def packed(table: str, dead_letters: pa.Table) -> bytes:
    """Dead letters and the name of their table as one file of Arrow's."""
    sink = pa.BufferOutputStream()
    named = dead_letters.replace_schema_metadata({_TABLE_KEY: table})
    with pa.ipc.new_stream(sink, named.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(named)
    return bytes(sink.getvalue())


def unpacked(file: bytes) -> tuple[str, pa.Table]:
    """The inverse of ``packed``."""
    rows = pa.ipc.open_stream(file).read_all()
    return rows.schema.metadata[_TABLE_KEY].decode(), rows.replace_schema_metadata(None)


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
        raise RowsRefused(
            f"the table {name} is one of acktrail's own tables: this source cannot write to it", hint=_NEXT
        )


def stored_schema(rows: pa.Schema) -> pa.Schema:
    """`rows` as a Delta table keeps them, without columns that have no type. Raises RowsRefused when it cannot keep
    one, or when two names differ only in their case."""
    found: dict[str, str] = {}
    for name in rows.names:
        other = found.setdefault(name.casefold(), name)
        if rows.names.count(name) > 1 or other != name:
            raise RowsRefused(
                f"the columns {other!r} and {name!r} are the same column to Delta", hint="rename one of them"
            )
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
                hint="a column cannot change its type: use another column for the new values, or another table by "
                "the transform Route",
                data={"table": table, "column": name},
            )
    whole = pa.schema([*schema, *(field for field in own if field.name not in schema.names)])
    try:
        return cast_to_schema(rows.select(own.names), whole)
    except pa.ArrowInvalid as error:
        raise RowsRefused(f"a value does not fit into {table}: {error}") from error


def schema_of(snapshot: TableSnapshot | None) -> pa.Schema:
    """The stored columns; of a table that is not there: none."""
    return pa.schema([]) if snapshot is None else pa.schema(snapshot.delta.schema().to_arrow())


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
