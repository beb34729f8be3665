"""Positions of a connector and its dead letters, written ahead of its rows (``tables.connector_tables``)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
from deltalake import CommitProperties, WriterProperties, write_deltalake

from acktrail.errors import ConcurrentCommit, RowsRefused
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.tables.connector_tables import (
    MADE_BY,
    OF_CONNECTOR,
    POSITIONS,
    ConnectorPositions,
    Standing,
    fitted,
    schema_of,
    stored_schema,
    unpacked,
)
from acktrail.tables.delta.delta_log_writer import check_expected, commit
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot


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


class WrittenPositions(ConnectorPositions):
    """The positions of `connector`, to be moved. Raises as ``Tables``."""

    def positions(self, wanted: Sequence[SourcePartition] | None = None) -> dict[SourcePartition, Position]:
        """The committed ones."""
        found = self.standings(wanted)
        return {each: standing.position for each, standing in found.items() if standing.position is not None}

    def write_ahead(self, entries: Iterable[Entry]) -> None:
        """One commit of `entries`. Raises ConcurrentCommit when another writer wrote ahead of one of them."""
        entries, at = list(entries), dt.datetime.now(dt.UTC)
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


def refitted(rows: pa.Table, snapshot: TableSnapshot) -> pa.Table:
    """Rows that were fitted before, to the columns that are stored now. Raises ConcurrentCommit when another writer
    gave one of them another type meanwhile."""
    try:
        return fitted(rows, schema_of(snapshot), snapshot.name)
    except RowsRefused as error:
        raise ConcurrentCommit(f"another writer changed the columns of {snapshot.name} first") from error
