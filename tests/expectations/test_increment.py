"""Every record is validated, and validated once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from acktrail_expectations.increment import LOOK_BACK, from_offsets, reached, windows

addresses = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=80)
positions = st.dictionaries(st.integers(0, 3), st.integers(0, 70))


def table(pairs: set[tuple[int, int]]) -> pa.Table:
    rows = [{"state_partition": partition, "offset": offset} for partition, offset in sorted(pairs, reverse=True)]
    return pa.Table.from_pylist(rows, schema=pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())]))


def pairs_of(rows: pa.Table) -> set[tuple[int, int]]:
    return {(row["state_partition"], row["offset"]) for row in rows.to_pylist()}


@given(addresses, positions, st.integers(1, 30))
def test_windows_hold_every_new_record_once(stored: set[tuple[int, int]], since: dict[int, int], most: int) -> None:
    """Whatever the windows' size, each record at or above its position lies in exactly one, with those before it."""
    new = [pair for pair in stored if pair[1] >= since.get(pair[0], 0)]
    found = []
    for window in windows(table(stored), since, most):
        rows = pairs_of(table(stored).filter(window.rows))
        inside = [(p, offset) for p, offset in rows if p in window.first and offset >= window.first[p]]
        assert {(p, o) for p, o in stored if p in window.first and o <= window.last[p]} == rows
        assert len(inside) <= max(most, 4)
        found += inside

    assert sorted(found) == sorted(new)


def test_a_window_looks_back_so_far_and_no_further() -> None:
    """Memory is bounded: of the records before the first one, only so many are read."""
    stored = {(0, offset) for offset in range(LOOK_BACK + 20)}
    (window,) = windows(table(stored), {0: LOOK_BACK + 10})

    rows = sorted(pairs_of(table(stored).filter(window.rows)))

    assert (rows[0], rows[-1]) == ((0, 10), (0, LOOK_BACK + 19))


@given(addresses, positions)
def test_positions_only_move_forward(stored: set[tuple[int, int]], since: dict[int, int]) -> None:
    """After a validation the position is one past the last record, and never lower than before."""
    ends = reached(table(stored), "offset", since)

    for partition in {p for p, _ in stored} | since.keys():
        highest = max((offset for p, offset in stored if p == partition), default=-1)
        assert ends[partition] == max(highest + 1, since.get(partition, 0))


@given(addresses, positions)
def test_a_state_partition_without_a_position_is_read_whole(
    stored: set[tuple[int, int]], since: dict[int, int]
) -> None:
    """No state partition is left out because nobody knew of it."""
    rows = pairs_of(table(stored).filter(from_offsets(since, "offset")))

    assert rows == {(p, offset) for p, offset in stored if offset >= since.get(p, 0)}


def test_a_range_that_is_only_a_gap_counts_by_its_gap() -> None:
    """An offset in any of the columns is enough."""
    rows = pa.table({"state_partition": [0, 0], "last_offset": pa.array([None, 3], pa.int64()), "gap_last": [9, None]})

    assert rows.filter(from_offsets({0: 5}, "last_offset", "gap_last")).num_rows == 1
    assert rows.filter(pc.field("state_partition") == 0).num_rows == 2
