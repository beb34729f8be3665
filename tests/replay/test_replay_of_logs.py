"""The replay leaves what the plain fold leaves, whatever the log and however it comes in. Timelines of marks, offset by
offset: cut, divided and joined, they are what the records say in turn; the cover of intervals is pointwise."""

from __future__ import annotations

import random
from itertools import groupby, pairwise, product
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import snapshot
from oracle.random_batches import random_record
from samples.random_records import INT64, batches

from acktrail.errors import InputError
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.format.wire.state_record import encode
from acktrail.model.batches import StateBatch
from acktrail.model.offset_changes import LAST_OFFSET
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text
from acktrail.replay import mark_timelines
from acktrail.replay.column_replay import REPLAYED_STATES, StateColumns, replay_decoded, states_of
from acktrail.replay.combine_batches import cover
from acktrail.replay.mark_timelines import MarkedRanges, timelines
from acktrail.replay.newest_offsets import LogReplay, NewestOffsets

Row = tuple[int, int, bytes | None, bytes | None]
"""State partition, offset, key, value."""
Found = dict[tuple[int, SharePartition], tuple[SharePartitionState, int]]
"""State and offset of the last record by state partition and share partition."""

KEYS = [
    SharePartition(group_id=GroupId(group), topic_id=topic_id_text(bytes([n]) * 16), partition=n)
    for group, n in product(("", "g:ü"), (0, 7))
]
EXTREMES = st.one_of(INT64, st.sampled_from([-(2**63), -1, 0, 2**62, 2**63 - 2, 2**63 - 1]))
starts = st.one_of(st.none(), st.integers(0, 45))
epochs = st.one_of(st.none(), st.integers(0, 3))


def extreme_batches(draw: st.DrawFn) -> tuple[StateBatch, ...]:
    """Inverted ones, the last possible offset, counts to both ends: what bytes can spell and no broker writes."""
    return tuple(
        StateBatch(
            first_offset=draw(EXTREMES),
            last_offset=draw(EXTREMES),
            delivery_state=draw(st.sampled_from([-128, 0, 4, 127])),
            delivery_count=draw(st.sampled_from([-(2**15), 0, 1, 2**15 - 1])),
        )
        for _ in range(draw(st.integers(0, 3)))
    )


@st.composite
def any_records(draw: st.DrawFn) -> StateRecord:
    """Mostly updates over few offsets, so that they meet; starts go forth and back."""
    key, kind = draw(st.sampled_from(KEYS)), draw(st.integers(0, 11))
    if kind == 0:
        return Tombstone(key=key)
    extreme = draw(st.integers(0, 9)) == 0
    fields: dict[str, Any] = {
        "key": key,
        "snapshot_epoch": draw(st.integers(0, 5)),
        "start_offset": draw(EXTREMES.filter(lambda n: n != -1) if extreme else starts),
        "delivery_complete_count": draw(epochs),
        "batches": extreme_batches(draw) if extreme else draw(batches(most=4)),
    }
    if kind <= 3:
        times = {"create_timestamp_ms": draw(st.integers(0, 9)), "write_timestamp_ms": 2}
        return ShareSnapshot(
            state_epoch=draw(st.integers(0, 3)), leader_epoch=draw(st.integers(-1, 3)), **times, **fields
        )
    return ShareUpdate(leader_epoch=draw(epochs), **fields)


@st.composite
def any_pairs(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    """A record, or what is left of one; odd ones that can still be read are among them."""
    key, value = encode(draw(any_records()))
    damage = draw(st.integers(0, 24))
    if value and damage < 4:
        return key, (None, value[:-1], value + b"\x07", b"\x00\x07" + value[2:])[damage]
    if damage < 9:
        return ((None, key[:-1], key + b"\x07", b"\x00\x02" + key[2:], key[:4] + b"\xff" + key[5:])[damage - 4], value)
    return key, value


@st.composite
def any_logs(draw: st.DrawFn) -> list[Row]:
    """Records on two state partitions in log order, offsets with holes."""
    rows: list[Row] = []
    offset = draw(st.sampled_from([0, 2**62]))
    for key, value in draw(st.lists(any_pairs(), max_size=25)):
        offset += draw(st.integers(1, 3))
        rows.append((draw(st.sampled_from([3, 3, 3, 49])), offset, key, value))
    return rows


def table_of(rows: list[Row]) -> pa.Table:
    partitions, offsets, keys, values = zip(*rows, strict=True) if rows else ((),) * 4
    timestamps = [offset % 1_000 for offset in offsets]
    columns = (partitions, offsets, timestamps, keys, values)
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, RAW_RECORDS.types, strict=True)], schema=RAW_RECORDS
    )


def folded(rows: list[Row]) -> Found:
    """The plain fold of each state partition, record by record."""
    found: Found = {}
    for partition in {row[0] for row in rows}:
        states: dict[SharePartition, SharePartitionState] = {}
        newest: dict[SharePartition, int] = {}
        for _, offset, key, value in sorted({row for row in rows if row[0] == partition}, key=lambda row: row[1]):
            raw = RawRecord(state_partition=partition, offset=offset, timestamp_ms=0, key=key, value=value)
            record = decode_raw(raw).record
            if record is not None:
                advance(states, record)
                newest[record.key] = offset
        found |= {(partition, key): (state, newest[key]) for key, state in states.items()}
    return found


def found_in(table: pa.Table) -> Found:
    assert table.schema.equals(REPLAYED_STATES)
    addresses = zip(table["state_partition"].to_pylist(), table["last_record_offset"].to_pylist(), strict=True)
    states = list(states_of(table))
    found = {(home, state.key): (state, last) for (home, last), state in zip(addresses, states, strict=True)}
    assert len(found) == table.num_rows
    assert table["last_record_timestamp_ms"].to_pylist() == [last % 1_000 for _, last in found.values()]
    return found


def replayed(pieces: list[list[Row]]) -> Found:
    replay = LogReplay()
    for piece in pieces:
        replay.add(decode_records(table_of(piece)))
    return found_in(replay.states())


def after_decoded(rows: list[Row], base: pa.Table) -> pa.Table:
    """The states after `rows` as the tables hold them, continued from the states `base`."""
    newest, records = NewestOffsets(), decode_records(table_of(rows))
    states = StateColumns.of_arrow(base, newest.index)
    numbers = newest.add(records)
    return replay_decoded(records, numbers, states, newest.first_replayed).to_arrow(newest.index)


def cut(rows: list[Row], data: st.DataObject) -> list[list[Row]]:
    """`rows` in pieces."""
    places = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
    return [rows[start:end] for start, end in pairwise([0, *places, len(rows)])]


@given(any_logs(), st.data())
def test_order_within_a_piece_does_not_matter(rows: list[Row], data: st.DataObject) -> None:
    """Any log in any pieces, the records of each shuffled, some twice: exactly the states of the plain fold, and the
    same last records."""
    pieces = []
    for piece in cut(rows, data):
        twice = data.draw(st.lists(st.sampled_from(piece), max_size=2)) if piece else []
        pieces.append(data.draw(st.permutations([*piece, *twice])))
    assert replayed(pieces) == folded(rows)


@given(any_logs(), st.data())
def test_decoded_records_resume_from_states(rows: list[Row], data: st.DataObject) -> None:
    """What the tables hold, in any order, replays to the same states as the bytes: piece after piece, each from the
    states that the one before left."""
    base = REPLAYED_STATES.empty_table()
    for piece in cut(rows, data):
        base = after_decoded(data.draw(st.permutations(piece)), base)
    assert found_in(base) == folded(rows)


def test_many_share_partitions_at_once() -> None:
    """Many share partitions with records of every kind interleaved: each has the state of the plain fold."""
    rows = busy_log(random.Random(2), share_partitions=600, records=9_000)
    found = replayed([rows[start : start + 1_000] for start in range(0, len(rows), 1_000)])
    assert found == folded(rows)
    assert len(found) > 500


def test_two_base_states_of_one_share_partition_are_refused() -> None:
    """Two states of a share partition on one state partition: nobody says which is right."""
    base = after_decoded([(0, 1, *encode(snapshot(KEYS[0], 1)))], REPLAYED_STATES.empty_table())
    with pytest.raises(InputError):
        after_decoded([], pa.concat_tables([base, base]))


def busy_log(source: random.Random, *, share_partitions: int, records: int) -> list[Row]:
    """Records of many share partitions on 7 state partitions, some of them away from home, some damaged."""
    keys = [
        SharePartition(group_id=GroupId(f"g{n % 50}-é"), topic_id=topic_id_text(bytes([n % 256] * 16)), partition=n)
        for n in range(share_partitions)
    ]
    rows = []
    for offset in range(records):
        number = source.randrange(share_partitions)
        key, value = encode(random_record(source, keys[number]))
        if source.random() < 0.02:
            value = source.choice((None, b"", value and value[:-2], value and value + b"\x01"))
        rows.append(((number + (source.random() < 0.03)) % 7, offset, key, value))
    return rows


OFFSETS = (*range(14), 2**40, LAST_OFFSET - 1, LAST_OFFSET)


class Range(NamedTuple):
    """A row of ``MarkedRanges``."""

    run: int
    row: int
    first: int
    last: int
    mark: int
    replaces: bool


@st.composite
def runs(draw: st.DrawFn) -> list[Range]:
    """Some runs; of a row only one range replaces others, or it has several that do not."""
    found, row = [], 0
    for run in range(draw(st.integers(1, 4))):
        found.append(Range(run, row, 0, LAST_OFFSET, -9, False))
        for length in draw(st.lists(st.integers(0, 3), max_size=6)):
            row += 1
            replaces = length == 1 and draw(st.booleans())
            for _ in range(length):
                first, last = sorted(draw(st.tuples(st.sampled_from(OFFSETS), st.sampled_from(OFFSETS))))
                found.append(Range(run, row, first, last, draw(st.integers(-9, 3)), replaces))
        row += 1
    return found


@pytest.fixture(params=[None, 1, 2], ids=["at once", "row by row", "two rows at a time"])
def at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs divided as those with many cuts are."""
    if request.param is not None:
        for name, value in (("_MOST_ROWS", 8), ("_LEAST_ROWS", request.param), ("_CUTS_OF_A_RANGE", 0)):
            monkeypatch.setattr(mark_timelines, name, value)
        monkeypatch.setattr(mark_timelines, "_RANGES_AT_ONCE", 4)


@pytest.mark.usefixtures("at_a_time")
def test_every_offset_has_the_marks_of_its_records_in_turn() -> None:
    """Changes are the shortest list, and runs begin and end as the definition does."""

    @given(runs())
    def compare(found: list[Range]) -> None:
        changes, begins, ends = _by_definition(found)
        columns = (np.array(column) for column in zip(*found, strict=True))
        lines = timelines(MarkedRanges(**dict(zip(Range._fields, columns, strict=True))))
        made = lines.changes.take(np.argsort(lines.changes.row, kind="stable")).joined()
        names = ("row", "first", "last", "before", "after")
        rows = list(zip(*(getattr(made, name).tolist() for name in names), strict=True))
        assert {(row, at): marks for row, low, high, *marks in rows for at in OFFSETS if low <= at <= high} == changes
        for one, other in pairwise(rows):
            assert one[0] != other[0] or one[2] + 1 < other[1] or (one[2] < other[1] and one[3:] != other[3:])
        for covers, expected in ((lines.begins, begins), (lines.ends, ends)):
            cells = list(
                zip(*(getattr(covers, name).tolist() for name in ("run", "first", "last", "mark")), strict=True)
            )
            assert {(run, at): m for run, low, high, m in cells for at in OFFSETS if low <= at <= high} == expected
            for one, other in pairwise(cells):
                assert (one[2] == LAST_OFFSET and other[1] == 0) or (one[2] + 1 == other[1] and one[3] != other[3])

    compare()


def _by_definition(
    found: list[Range],
) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Offset by offset: the changes by row and offset, the marks by run and offset after its first and last row."""
    changes: dict[tuple[int, int], list[int]] = {}
    begins: dict[tuple[int, int], int] = {}
    marks: dict[tuple[int, int], int] = {}
    for (run, row), ranges in groupby(found, key=itemgetter(0, 1)):
        before = {at: marks.get((run, at)) for at in OFFSETS}
        for each in ranges:
            for at in OFFSETS:
                if each.first <= at <= each.last:
                    old = marks.get((run, at), each.mark)
                    marks[run, at] = each.mark if each.replaces else max(old, each.mark)
        for at, old in before.items():
            if old is None:
                begins[run, at] = marks[run, at]
            elif old != marks[run, at]:
                changes[row, at] = [old, marks[run, at]]
    return changes, begins, marks


def test_no_range_has_no_timeline() -> None:
    """Nothing in, nothing out."""
    nothing = np.empty(0, np.int64)
    assert not len(timelines(MarkedRanges.of(nothing, 0, 0, 0)).changes.row)


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(-5, 5)).map(lambda t: (t[0], t[0] + t[1], t[2])),
    max_size=25,
)


@given(intervals, st.sampled_from([0, 2**61]))
def test_every_point_has_the_highest_priority(found: list[tuple[int, int, int]], shift: int) -> None:
    """Disjoint, ascending, as few as can be, and at each point the greatest priority of those that cover it."""
    first, last, priority = (np.array([t[i] for t in found], np.int64) for i in range(3))
    covers = list(
        zip(*(a.tolist() for a in cover(first + shift, last + shift, priority.astype(np.int32))), strict=True)
    )
    told = {p - shift: priority for begin, end, priority in covers for p in range(begin, end + 1)}
    assert told == {
        p: max(rank for begin, end, rank in found if begin <= p <= end)
        for p in range(100)
        if any(begin <= p <= end for begin, end, _ in found)
    }
    for (_, end, rank), (begin, _, next_rank) in pairwise(covers):
        assert begin > end
        assert begin > end + 1 or rank != next_rank
