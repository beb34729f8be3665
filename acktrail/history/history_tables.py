"""``delivery_history`` and ``held_states``: how far the history is built, and one more step of it.

A step adds the changes that records made, and saves the states after them. The changes and the positions after them are
one commit of ``delivery_history``. ``held_states`` follows in a commit of its own: after a crash between the two it is
at an earlier position, and the next step applies those records again without adding changes. It can always be built
again from ``state_records``.

Rows of ``delivery_history`` are in chunks. A lookup opens every chunk, so there must be few; rows should not be written
often, so large chunks must stay as they are. Chunks are of a tier by their number of rows, each tier eight times the
one below. Before eight of one tier would lie side by side they become one of the next. A chunk of the highest tier is
never touched again.

Here, too: ``queue_trends``, whose chunks follow the same rule. They follow each other in time; of one interval in
several chunks the later one has the later observations. A chunk that is old as a whole is written again with longer
intervals. That changes no sum, and needs no number of a run. Rows of whole groups, which pages show most, have chunks
of their own, numbered from ``OF_GROUPS`` on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.record_columns import HELD_COLUMNS
from acktrail.format.columns.schemas.table_schemas import DELIVERY_HISTORY, with_dictionaries
from acktrail.history.saved_states import HISTORY, RECORDS_USED, SavedStates, continued, read_saved, save_files
from acktrail.replay.time_buckets import DAY_MS, HOUR_MS, added_buckets, aged, aging_begins, in_order
from acktrail.tables.cluster_check import create_anew_for, create_for
from acktrail.tables.delta.delta_log_writer import write_data_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of

CHANGES: Final = "delivery_history"
HELD: Final = HISTORY.name
_STEP: Final = HISTORY.step
"""The app id whose number counts the steps of both tables."""
_FAN: Final = 8
FULL_ROWS: Final = _FAN**6
"""A chunk with at least 262,144 rows stays as it is; the largest have eight times more."""
HISTORY_ROWS: Final = with_dictionaries(DELIVERY_HISTORY)
"""``DELIVERY_HISTORY`` with texts as dictionaries."""
_ORDER: Final = ("group_id", "topic_id", "partition", "first_offset", "state_partition", "record_offset")
TRENDS: Final = "queue_trends"
OF_GROUPS: Final = 1 << 40
"""The chunks with rows of whole groups have this number or a higher one, those of share partitions lower ones."""
_LAST: Final = (1 << 62) - 1
_SPANS: Final = ((0, OF_GROUPS - 1), (OF_GROUPS, _LAST))
"""The first and last number of the chunks of share partitions, and of those of groups."""
_OF_CHUNKS: Final = ("partition.chunk", "num_records", "max.bucket_at", "min.bucket_ms")
_WORTH_ROWS: Final = 32_768
"""Old rows in chunks of their own are left as they are until they are this many."""


class HistoryTables:
    """The history of one cluster in `tables`. One writer at a time: another one ends in ConcurrentCommit. Raises
    ForeignCluster (the tables are another cluster's)."""

    def __init__(self, tables: Tables, cluster_id: str) -> None:
        self._tables, self._cluster_id = tables, cluster_id
        create_for(tables, CHANGES, cluster_id)
        create_anew_for(tables, HELD, cluster_id)

    def saved(self) -> SavedStates:
        """The states from which the next step continues, unless ``delivery_history`` lacks changes that led to them."""
        saved = continued(self._tables, read_saved(self._tables, HISTORY))
        if (saved.step or 0) > self._step():
            return saved.without(f"{CHANGES} lacks changes that led to the states of {HELD}")
        return saved

    @property
    def has_begun(self) -> bool:
        """There are steps of a history."""
        return self._step() > 0

    def add(self, changes: pa.Table, files: pa.Table, before: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Commit rows of ``DELIVERY_HISTORY``, and `files` with more of them (``WRITTEN_FILES``), from the positions
        `before` to `ends`, if any of these lies further. Raises ConcurrentCommit (the table is not at `before` any
        more: another writer came first, and nothing landed)."""
        snapshot = self._tables.snapshot(CHANGES)
        assert snapshot is not None
        moved = [number for number, end in ends.items() if end > before[number]]
        if not moved:
            return
        step = snapshot.transaction_version(_STEP)
        transactions = {_app_id(number): ends[number] for number in moved} | {_STEP: (step or 0) + 1}
        expected = {_app_id(number): before[number] or None for number in moved} | {_STEP: step}
        moves: dict[str, Any] = {"transactions": transactions, "expected": expected}
        new_rows = changes.num_rows + (pc.sum(files["rows"]).as_py() or 0)
        if not new_rows:
            self._tables.append(CHANGES, DELIVERY_HISTORY.empty_table(), **moves)
            return
        chunk, later = _later_chunks(snapshot, new_rows)
        rows = in_lookup_order(pa.concat_tables([cast_to_schema(each, HISTORY_ROWS) for each in (later, changes)]))
        both = pa.concat_tables([files, write_data_file(snapshot.place, rows.drop_columns(["chunk"]))])
        self._tables.commit_files(CHANGES, both, replaces=True, chunk=chunk, **moves)

    def save(self, saved: SavedStates, files: pa.Table, counts: Mapping[int, int]) -> SavedStates:
        """Replace the saved states by those in `files` (``save_files``); the step they were read at must still be the
        newest. Raises ConcurrentCommit (another writer came first; nothing landed)."""
        used = {RECORDS_USED: saved.used.version}
        step = self._step()
        return save_files(self._tables, saved, files, counts, cluster_id=self._cluster_id, step=step, transactions=used)

    def _step(self) -> int:
        return self._tables.transaction_version(CHANGES, _STEP) or 0


def change_positions(tables: Tables, state_partitions: Iterable[int]) -> dict[int, int]:
    """The offset of the first record whose changes are not in ``delivery_history``, by state partition."""
    return positions_at(tables.snapshot(CHANGES), state_partitions)


def positions_at(snapshot: TableSnapshot | None, state_partitions: Iterable[int]) -> dict[int, int]:
    """``change_positions`` of one version of ``delivery_history``; None: there is none."""
    position_of = (lambda _app: None) if snapshot is None else snapshot.transaction_version
    return {number: position_of(_app_id(number)) or 0 for number in state_partitions}


def saved_positions(tables: Tables) -> dict[int, int]:
    """The offset of the first record that is not applied to ``held_states``, by state partition."""
    rows = tables.read(HELD, columns=["state_partition", "next_offset"], where=pc.field("next_offset").is_valid())
    return dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def saved_rows(tables: Tables, where: pc.Expression) -> pa.Table:
    """Rows of ``HELD_COLUMNS`` that satisfy `where`."""
    return tables.read(HELD, columns=HELD_COLUMNS.names, where=where & pc.field("next_offset").is_null())


def unattributed_records(tables: Tables, state_partitions: Iterable[int]) -> list[dict[str, Any]]:
    """State partition, offset and time of unreadable records without a share partition, ascending. They may be about
    any share partition of their state partition. Records of an unknown type are not among them: a broker skips
    these."""
    where = (
        ~one_of("decode_status", ["decoded", "unknown_type"])
        & pc.field("group_id").is_null()
        & one_of("state_partition", state_partitions)
    )
    rows = tables.read("state_records", columns=["state_partition", "offset", "timestamp_ms"], where=where)
    return rows.sort_by([("state_partition", "ascending"), ("offset", "ascending")]).to_pylist()


def history_rows(changes: pa.Table, cluster_id: str) -> pa.Table:
    """Rows of ``DELIVERY_HISTORY``, without their chunk, out of rows of ``CHANGE_COLUMNS``; texts stay dictionaries."""
    owner = pa.DictionaryArray.from_arrays(pa.nulls(changes.num_rows, pa.int32()).fill_null(0), pa.array([cluster_id]))
    return cast_to_schema(changes.append_column("cluster_id", owner), HISTORY_ROWS)


def in_lookup_order(rows: pa.Table) -> pa.Table:
    """Rows of ``HISTORY_ROWS`` in the order in which a lookup of a record finds its own side by side."""
    return in_order(rows, _ORDER)


def _later_chunks(snapshot: TableSnapshot, new_rows: int) -> tuple[int, pa.Table]:
    """The chunk that `new_rows` rows go to, and the rows of that chunk and later ones: too few to stay where they
    are."""
    chunks = _chunks(snapshot, (0, _LAST))
    first, number = _rewritten_with(chunks, new_rows, 0)
    if first < len(chunks):
        return number, snapshot.read(where=pc.field("chunk") >= number)
    return number, DELIVERY_HISTORY.empty_table()


def _app_id(state_partition: int) -> str:
    return f"history/{state_partition}"


def first_rewritten(sizes: Sequence[int], new_rows: int) -> int:
    """Return the index of the first chunk that is rewritten with `new_rows`; all later chunks are rewritten with it.
    ``len(sizes)``: the new rows become a chunk of their own. `sizes`: rows of each chunk, oldest first.

    Chunks of similar size are a tier. The invariant: at most seven chunks of one tier lie side by side, except in the
    tier of full chunks. So n rows that come evenly lie in fewer than n / FULL_ROWS + 42 chunks, and a row is written at
    most seven times, once for each tier.
    """
    index, total = len(sizes), new_rows
    while True:
        begin = index
        while begin and sizes[begin - 1] < FULL_ROWS and _tier(sizes[begin - 1]) <= _tier(total):
            begin -= 1
        if index - begin < _FAN - 1:
            return index
        total += sum(sizes[begin:index])
        index = begin


def _tier(rows: int) -> int:
    """The whole logarithm of `rows` by ``_FAN``."""
    return max(0, rows.bit_length() - 1) // (_FAN.bit_length() - 1)


class _Chunk(NamedTuple):
    """`newest_us`: the beginning of its newest interval; `shortest_ms`: the length of its shortest."""

    number: int
    rows: int
    newest_us: int
    shortest_ms: int


def add_parts(tables: Tables, parts: pa.Table, run: int, app_id: str, now_us: int) -> None:
    """Add rows of one run unless they are there, then write old chunks again. Each commit moves a number that begins
    with `app_id` to `run`, which grows from run to run. `now_us`: when the run observed, in µs since the epoch."""
    is_group = pc.is_null(parts["partition"])
    for own, span in zip((pc.invert(is_group), is_group), _SPANS, strict=True):
        moved = app_id if span is _SPANS[0] else f"{app_id}/groups"
        number = tables.transaction_version(TRENDS, moved)
        if number is None or number < run:
            _add(tables, parts.filter(own), now_us, span, {moved: run}, {moved: number})
            _age(tables, now_us, span)


def _add(
    tables: Tables,
    parts: pa.Table,
    now_us: int,
    span: tuple[int, int],
    moved: Mapping[str, int],
    expected: Mapping[str, int | None],
) -> None:
    chunks = _chunks(tables.create(TRENDS), span)
    first, number = _rewritten_with(chunks, parts.num_rows, span[0])
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


def _rewritten_with(chunks: Sequence[_Chunk], new_rows: int, lowest: int) -> tuple[int, int]:
    """``first_rewritten`` of `chunks`, and the number of the chunk that the new rows are in then."""
    first = first_rewritten([chunk.rows for chunk in chunks], new_rows)
    if first < len(chunks):
        return first, chunks[first].number
    return first, chunks[-1].number + 1 if chunks else lowest


def _chunks(snapshot: TableSnapshot, span: tuple[int, int]) -> list[_Chunk]:
    """Those of a span, ascending. Where the log has no numbers of a file's intervals (another engine wrote it), the
    chunk is not old."""
    files: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, rows, newest, shortest in map(dict.values, snapshot.statistics(_OF_CHUNKS).values()):
        files[number].append((rows, _microseconds(newest), shortest or DAY_MS))
    found = []
    for number, own in sorted(files.items()):
        rows, newest_us, shortest_ms = zip(*own, strict=True)
        if span[0] <= number <= span[1]:
            found.append(_Chunk(number, sum(rows), max(newest_us), min(shortest_ms)))
    return found


def _microseconds(instant: Any) -> int:
    return _LAST if instant is None else int(instant.timestamp() * 1_000_000)
