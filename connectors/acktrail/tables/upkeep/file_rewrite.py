"""Data files written again: their rows in the order of lookups, in memory that follows the size of one piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from acktrail.errors import DamagedTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.data_file import Measure, add_action, new_path
from acktrail.tables.delta.table_layout import CHUNK, cast_to_schema, measured_columns, parquet_options
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot
from acktrail.tables.sinks.open_tables import schema_of
from acktrail.tables.upkeep.compaction_plan import MOST_BYTES, SORTED_ROWS

SORTED_BY: Final = {"state_records": ("state_partition", "offset")}
"""Tables whose rows a rewritten file has in an order; those of others stay in the order in which they were written."""
_LEAST_PART: Final = 8
"""A row group ends with a value of the first column where it has this part of the most rows."""
_AT_ONCE: Final = 65_536
Change = Callable[[pa.Table], pa.Table]
"""What becomes of the rows of one piece."""


@dataclass(slots=True, kw_only=True)
class Rewrite:
    """What the files `removed` of a table become: `added`, with `rows` of the `rows_before` that they had."""

    removed: tuple[DataFile, ...]
    added: list[AddAction] = field(default_factory=list)
    rows_before: int = 0
    rows: int = 0


def rewrite(
    snapshot: TableSnapshot, files: Sequence[DataFile], change: Change | None = None, *, is_one_piece: bool = False
) -> Rewrite:
    """Write the rows of `files`, each piece changed by `change`, as new files; they are no part of the table before
    they are committed. `files` have the same chunk. `is_one_piece`: `change` gets all rows at once. Raises
    DamagedTables (the files have other rows than the log says)."""
    done = Rewrite(removed=tuple(files))
    writer = _Writer(snapshot, files)
    with snapshot.place.translated():
        pieces = _pieces(snapshot, files)
        for piece in [pa.concat_tables(pieces)] if is_one_piece else pieces:
            done.rows_before += piece.num_rows
            changed = piece if change is None else change(piece)
            done.rows += changed.num_rows
            writer.add(changed)
        done.added = writer.close()
    known = [file.rows for file in files]
    if None not in known and done.rows_before != sum(rows or 0 for rows in known):
        discard(snapshot.place, done)
        raise DamagedTables(
            f"tables at {snapshot.place.root.shown}: table {snapshot.name}: files have other rows than the log says",
            hint="`acktrail tables repair` shows what is wrong",
            table=snapshot.name,
        )
    return done


def discard(place: TablePlace, done: Rewrite) -> None:
    """Remove files that will not be committed."""
    storage = place.storage()
    for action in done.added:
        storage.delete_file(action.path)


def file_schema(snapshot: TableSnapshot) -> pa.Schema:
    """The columns that the files of a table have: in acktrail's types, or as they are stored where the table is a
    connector's own."""
    if snapshot.name not in TABLES:
        return schema_of(snapshot)
    return pa.schema([own for own in TABLES[snapshot.name] if own.name != CHUNK])


def scanned(
    snapshot: TableSnapshot,
    files: Sequence[DataFile],
    columns: Sequence[str],
    where: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of `files`, oldest file first, batch by batch; row groups that `where` rules out are not read."""
    schema = file_schema(snapshot)
    for file in files:
        dataset = ds.dataset([file.path], schema=schema, format="parquet", filesystem=snapshot.place.storage())
        scanner = dataset.scanner(columns=list(columns), filter=where, batch_size=_AT_ONCE, batch_readahead=1)
        yield from scanner.to_batches()


def _pieces(snapshot: TableSnapshot, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    order, schema = SORTED_BY.get(snapshot.name), file_schema(snapshot)
    if order is None:
        for batch in scanned(snapshot, files, schema.names):
            yield cast_to_schema(pa.Table.from_batches([batch]), schema)
        return
    for where in _cuts(snapshot, files, order):
        rows = pa.Table.from_batches(scanned(snapshot, files, schema.names, where), schema=schema)
        yield rows.sort_by([(name, "ascending") for name in order]).combine_chunks()


def _cuts(snapshot: TableSnapshot, files: Sequence[DataFile], order: Sequence[str]) -> Iterator[pc.Expression | None]:
    """Conditions on the two columns `order` that hold about ``SORTED_ROWS`` rows each, ascending, and all together."""
    if sum(file.rows or 0 for file in files) <= SORTED_ROWS and all(file.rows is not None for file in files):
        yield None
        return
    keys = pa.Table.from_batches(
        scanned(snapshot, files, order), schema=pa.schema([TABLES[snapshot.name].field(name) for name in order])
    )
    number, offset = (keys[name].to_numpy() for name in order)
    ranks = np.lexsort((offset, number))
    edges = [(int(number[at]), int(offset[at])) for at in ranks[SORTED_ROWS::SORTED_ROWS]]
    bounds = [None, *edges, None]
    for low, high in pairwise(bounds):
        parts = [*([] if low is None else [_from(order, *low)]), *([] if high is None else [~_from(order, *high)])]
        yield reduce(lambda one, other: one & other, parts) if parts else None


def _from(order: Sequence[str], number: int, offset: int) -> pc.Expression:
    """Rows at or after an address."""
    first, second = (pc.field(name) for name in order)
    return reduce(or_, [first > number, (first == number) & (second >= offset)])


class _Writer:
    """Files of at most about ``MOST_BYTES``, as pieces come."""

    def __init__(self, snapshot: TableSnapshot, files: Sequence[DataFile]) -> None:
        self._snapshot, self._schema = snapshot, file_schema(snapshot)
        self._chunk = files[0].chunk
        self._modified_ms = max(file.modified_ms for file in files)
        """As old as the rows: readers take files in this order."""
        self._options = parquet_options(snapshot.name)
        self._group = self._options.pop("row_group_size")
        self._open: tuple[pq.ParquetWriter, pa.BufferOutputStream] | None = None
        self._held: list[pa.Table] = []
        self._measures: list[Measure] = []
        self._added: list[AddAction] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        if sum(each.num_rows for each in self._held) >= self._group:
            self._flush()

    def close(self) -> list[AddAction]:
        self._flush()
        self._end_file()
        return self._added

    def _flush(self) -> None:
        rows = pa.concat_tables([self._schema.empty_table(), *self._held]).combine_chunks()
        self._held = []
        if not rows.num_rows:
            return
        if self._open is None:
            sink = pa.BufferOutputStream()
            self._open = pq.ParquetWriter(sink, self._schema, **self._options), sink
        writer, sink = self._open
        for begin, end in pairwise(self._group_edges(rows)):
            writer.write_table(rows.slice(begin, end - begin), row_group_size=self._group)
        self._measures.append(Measure.of(rows, measured_columns(self._snapshot.name, self._schema)))
        if sink.tell() >= MOST_BYTES:
            self._end_file()

    def _group_edges(self, rows: pa.Table) -> list[int]:
        """Where row groups begin and end. In an order they begin with a value of the first column, unless that makes
        them small: the bounds of a group with one value of it leave out most offsets."""
        order = SORTED_BY.get(self._snapshot.name)
        if order is None:
            return [0, rows.num_rows]
        numbers = rows[order[0]].to_numpy()
        edges = [0]
        for head in (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist():
            if head - edges[-1] >= self._group // _LEAST_PART:
                edges.append(head)
        return [*edges, rows.num_rows]

    def _end_file(self) -> None:
        if self._open is None:
            return
        writer, sink = self._open
        writer.close()
        content, self._open = sink.getvalue(), None
        path = new_path(self._chunk)
        self._snapshot.place.put_file(path, content)
        action = add_action(path, content.size, self._measures, modified_ms=self._modified_ms, chunk=self._chunk)
        self._added.append(action)
        self._measures = []
