"""Positions that are no log's: numbers or JSON, of any connector.

A Delta commit carries one whole number for each app id. So each position gets a number that only ever grows, and stands
in ``connector_positions`` under it before the rows are committed; the commit of the rows has that number as the app
id's. The number that the rows' table has says which position counts: one that a crash left behind has no effect.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import DamagedTables
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.sinks.open_tables import append_growing, of_connector, refitted, stored_schema

POSITIONS: Final = "connector_positions"
_NAME: Final = b"table"
_LOOKS: Final = 5
_COLUMNS: Final = ("source_partition", "number", "table", "position")


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
    named = dead_letters.replace_schema_metadata({_NAME: table})
    with pa.ipc.new_stream(sink, named.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(named)
    return bytes(sink.getvalue())


def unpacked(file: bytes) -> tuple[str, pa.Table]:
    """The inverse of ``packed``."""
    rows = pa.ipc.open_stream(file).read_all()
    return rows.schema.metadata[_NAME].decode(), rows.replace_schema_metadata(None)
