"""Positions that are no log's: numbers or JSON, of any connector.

A Delta commit carries one whole number for each app id. So each position gets a number that only ever grows, and stands
in ``connector_positions`` under it before the rows are committed; the commit of the rows has that number as the app
id's. The number that the rows' table has says which position counts: one that a crash left behind has no effect.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, Schema, WriterProperties, write_deltalake

from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import ConcurrentCommit, DamagedTables, RowsRefused
from acktrail.format.columns.schemas.table_schemas import POSITIONED_TABLES, TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_commit import check_expected, commit
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A position to be written ahead. `table` None: there are no rows, it counts by itself. `dead_letters`: those since
    the position before, as a file of Arrow's."""

    source_partition: SourcePartition
    before: Standing
    table: str | None
    position: Position | None
    dead_letters: bytes | None = None

    @property
    def number(self) -> int:
        return (self.before.newest or 0) + 1


class ConnectorPositions:
    """The positions of `connector`. `clock` gives UTC instants. Raises as ``Tables``."""

    def __init__(
        self,
        tables: Tables,
        connector: str,
        *,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._tables, self._connector, self._clock = tables, connector, clock

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
            hint="give the connector another name and tables: which of its rows are committed is not known",
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

    def positions(self, wanted: Sequence[SourcePartition] | None = None) -> dict[SourcePartition, Position]:
        """The committed ones."""
        found = self.standings(wanted)
        return {each: standing.position for each, standing in found.items() if standing.position is not None}

    def write_ahead(self, entries: Iterable[Entry]) -> None:
        """One commit of `entries`. Raises ConcurrentCommit when another writer wrote ahead of one of them."""
        entries, at = list(entries), self._clock()
        self._tables.append(
            POSITIONS,
            [
                {
                    "connector": self._connector,
                    "source_partition": str(entry.source_partition),
                    "number": entry.number,
                    "table": entry.table,
                    "position": None if entry.position is None else json.dumps(entry.position, sort_keys=True),
                    "dead_letters": entry.dead_letters,
                    "at": at,
                }
                for entry in entries
            ],
            transactions={self.app_id(entry.source_partition): entry.number for entry in entries},
            expected={self.app_id(entry.source_partition): entry.before.newest for entry in entries},
        )

    def move(self, positions: Mapping[SourcePartition, Position | None]) -> None:
        """Set positions in one commit, None: remove one. The connector is stopped."""
        found = self.standings([*positions])
        self.complete(found)
        self.write_ahead(
            Entry(source_partition=each, before=found.get(each, Standing()), table=None, position=position)
            for each, position in positions.items()
        )

    def complete(self, standings: Mapping[SourcePartition, Standing]) -> None:
        """Deliver the dead letters of commits after which a crash came."""
        numbers = {each: standing.counted for each, standing in standings.items() if standing.counted is not None}
        if numbers:
            self.deliver(numbers)

    def deliver(self, numbers: Mapping[SourcePartition, int]) -> int:
        """Bring the dead letters that were written ahead under `numbers`, and count by now, to their table; those that
        are there already are left. Gives how many rows that were."""
        found = self._tables.rows(
            POSITIONS,
            {
                "connector": self._connector,
                "source_partition": [str(each) for each in numbers],
                "number": sorted({*numbers.values()}),
            },
            columns=["source_partition", "number", "dead_letters"],
        )
        count = 0
        for row in found:
            source_partition = SourcePartition(row["source_partition"])
            if row["dead_letters"] is not None and numbers[source_partition] == row["number"]:
                count += self._deliver(source_partition, row["number"], row["dead_letters"])
        return count

    def _deliver(self, source_partition: SourcePartition, number: int, letters: bytes) -> int:
        table, rows = unpacked(letters)
        snapshot = of_connector(self._tables, table, stored_schema(rows.schema))
        own = self.app_id(source_partition)
        known = snapshot.transaction_version(own)
        if known is not None and known >= number:
            return 0
        append_growing(snapshot, refitted(rows, snapshot), {own: number}, {own: known})
        return int(rows.num_rows)

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
            position=None if text is None else json.loads(text),
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
        return cast_to_schema(rows.select(own.names), whole)
    except pa.ArrowInvalid as error:
        raise RowsRefused(f"a value does not fit into {table}: {error}") from error


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
