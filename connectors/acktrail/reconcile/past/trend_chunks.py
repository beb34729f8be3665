"""``queue_trends``: parts of intervals are added, and become fewer and longer ones with time.

Rows of a run are a chunk of their own, or go into one with the small chunks before it, by the rule of the delivery
history (``first_rewritten``): a row is written about seven times, and a reader of one queue opens few files. Chunks
follow each other in time; of one interval in several chunks the later one has the later observations. A chunk that is
old as a whole is written again with longer intervals. That changes no sum, and needs no number of a run.

Rows of whole groups, which pages show most, have chunks of their own, numbered from ``OF_GROUPS`` on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.reconcile.past.history_tables import FULL_ROWS, first_rewritten
from acktrail.replay.time_buckets import DAY_MS, HOUR_MS, added_buckets, aged, aging_begins
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

TRENDS: Final = "queue_trends"
OF_GROUPS: Final = 1 << 40
"""The chunks with rows of whole groups have this number or a higher one, those of share partitions lower ones."""
_SPANS: Final = ((0, OF_GROUPS - 1), (OF_GROUPS, (1 << 62) - 1))
"""The first and last number of the chunks of share partitions, and of those of groups."""
_WORTH_ROWS: Final = 32_768
"""Old rows in chunks of their own are left as they are until they are this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """`newest_us`: the beginning of its newest interval; `shortest_ms`: the length of its shortest."""

    number: int
    rows: int
    newest_us: int
    shortest_ms: int


def add_parts(tables: Tables, parts: pa.Table, run: int, app_id: str) -> None:
    """Add rows of one run unless they are there, then write old chunks again. `run`: when it observed, in µs since the
    epoch; each commit moves a number that begins with `app_id` to it."""
    is_group = pc.is_null(parts["partition"])
    for own, span in zip((pc.invert(is_group), is_group), _SPANS, strict=True):
        moved = app_id if span is _SPANS[0] else f"{app_id}/groups"
        number = tables.transaction_version(TRENDS, moved)
        if number is None or number < run:
            _add(tables, parts.filter(own), run, span, {moved: run}, {moved: number})
            _age(tables, run, span)


def _add(
    tables: Tables,
    parts: pa.Table,
    now_us: int,
    span: tuple[int, int],
    moved: Mapping[str, int],
    expected: Mapping[str, int | None],
) -> None:
    chunks = _chunks(tables.create(TRENDS), span)
    first = first_rewritten([chunk.rows for chunk in chunks], parts.num_rows)
    number = chunks[first].number if first < len(chunks) else (chunks[-1].number + 1 if chunks else span[0])
    rows = _numbered(_joined(tables, chunks[first:], parts, now_us), number)
    tables.replace(TRENDS, rows, chunk=number, last_chunk=span[1], transactions=moved, expected=expected)


def _age(tables: Tables, now_us: int, span: tuple[int, int]) -> None:
    """Write the first old chunks that lie side by side again, with those before them that are too small to stay."""
    snapshot = tables.snapshot(TRENDS)
    chunks = [] if snapshot is None else _chunks(snapshot, span)
    begin, end = _old(chunks, now_us)
    if sum(chunk.rows for chunk in chunks[begin:end]) < _WORTH_ROWS:
        return
    rows = _joined(tables, chunks[begin:end], None, now_us)
    first = first_rewritten([chunk.rows for chunk in chunks[:begin]], rows.num_rows)
    if first < begin:
        rows = _joined(tables, chunks[first:end], None, now_us)
    number = chunks[first].number
    tables.replace(TRENDS, _numbered(rows, number), chunk=number, last_chunk=chunks[end - 1].number)


def _old(chunks: Sequence[_Chunk], now_us: int) -> tuple[int, int]:
    """From where to where chunks have rows of a length that is too short for all of their age; a limited number of
    rows."""
    begins = aging_begins(now_us)
    is_old = [
        (chunk.newest_us < begins[HOUR_MS] and chunk.shortest_ms < HOUR_MS)
        or (chunk.newest_us < begins[DAY_MS] and chunk.shortest_ms < DAY_MS)
        for chunk in chunks
    ]
    begin = next((place for place, old in enumerate(is_old) if old), len(chunks))
    end, rows = begin, 0
    while end < len(chunks) and is_old[end] and rows < FULL_ROWS:
        rows += chunks[end].rows
        end += 1
    return begin, end


def _joined(tables: Tables, chunks: Sequence[_Chunk], parts: pa.Table | None, now_us: int) -> pa.Table:
    """The rows of neighbouring chunks, and `parts` behind them, as one chunk."""
    pieces = [] if parts is None else [parts]
    if chunks:
        chunk = pc.field("chunk")
        stored = tables.read(TRENDS, where=(chunk >= chunks[0].number) & (chunk <= chunks[-1].number))
        pieces.insert(0, stored.take(pc.sort_indices(stored["chunk"])))
    return added_buckets(aged(pa.concat_tables(pieces), now_us))


def _numbered(rows: pa.Table, number: int) -> pa.Table:
    column = pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
    return rows.set_column(rows.column_names.index("chunk"), "chunk", column)


def _chunks(snapshot: TableSnapshot, span: tuple[int, int]) -> list[_Chunk]:
    """Those of a span, ascending. Where the log has no numbers of a file's intervals (another engine wrote it), the
    chunk is not old."""
    with snapshot.place.translated():
        actions = pa.table(snapshot.delta.get_add_actions(flatten=True))
    found: dict[int, _Chunk] = {}
    for row in actions.to_pylist():
        number = row["partition.chunk"]
        if not span[0] <= number <= span[1]:
            continue
        own = _Chunk(
            number=number,
            rows=row["num_records"],
            newest_us=_microseconds(row.get("max.bucket_at")),
            shortest_ms=row.get("min.bucket_ms") or DAY_MS,
        )
        other = found.get(number)
        if other is not None:
            own = _Chunk(
                number=number,
                rows=own.rows + other.rows,
                newest_us=max(own.newest_us, other.newest_us),
                shortest_ms=min(own.shortest_ms, other.shortest_ms),
            )
        found[number] = own
    return [found[number] for number in sorted(found)]


def _microseconds(instant: Any) -> int:
    return (1 << 62) if instant is None else int(instant.timestamp() * 1_000_000)
