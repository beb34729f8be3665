"""Every record is validated, and validated once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from acktrail.replay.stored_offsets import StoredOffsets, stored_offsets
from acktrail_expectations.run_data import advanced, at_or_above

addresses = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=80)
positions = st.dictionaries(st.integers(0, 3), st.integers(0, 70))


def table(pairs: set[tuple[int, int]]) -> pa.Table:
    rows = [{"state_partition": partition, "offset": offset} for partition, offset in sorted(pairs, reverse=True)]
    return pa.Table.from_pylist(rows, schema=pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())]))


def offsets_of(pairs: set[tuple[int, int]]) -> StoredOffsets:
    return stored_offsets(table(pairs).to_batches(), {})


def pairs_of(rows: pa.Table) -> set[tuple[int, int]]:
    return {(row["state_partition"], row["offset"]) for row in rows.to_pylist()}


@given(addresses, positions)
def test_positions_only_move_forward(stored: set[tuple[int, int]], since: dict[int, int]) -> None:
    """After a validation the position is one past the last record, and never lower than before."""
    ends = advanced(offsets_of(stored).ends(), since)

    for partition in {p for p, _ in stored} | since.keys():
        highest = max((offset for p, offset in stored if p == partition), default=-1)
        assert ends[partition] == max(highest + 1, since.get(partition, 0))


@given(st.lists(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=20), max_size=90), positions)
def test_stored_offsets_are_counted_once(pieces: list[set[tuple[int, int]]], begin: dict[int, int]) -> None:
    """Addresses may come in any pieces and order, also twice: each offset of a range counts once, and a range that
    reaches below what was looked at has no count."""
    stored = {(p, o) for piece in pieces for p, o in piece}
    found = stored_offsets((batch for piece in pieces for batch in table(piece).to_batches()), begin)

    for partition, first, last in ((0, 0, 60), (1, 13, 14), (2, 30, 29), (3, 59, 80)):
        held = sum(p == partition and first <= o <= last for p, o in stored)
        assert found.count(partition, first, last) == (None if first < begin.get(partition, 0) else held)
    assert sum(len(runs.first) for runs in found.runs.values()) == sum((p, o - 1) not in stored for p, o in stored)


def test_a_log_without_holes_is_one_run() -> None:
    """What is kept of the addresses does not follow the records."""
    batches = (table({(0, o) for o in range(at, at + 100)}).to_batches()[0] for at in range(0, 20_000, 100))

    (runs,) = stored_offsets(batches, {}).runs.values()

    assert (runs.first.tolist(), runs.end.tolist()) == ([0], [20_000])


@given(addresses, positions)
def test_a_state_partition_without_a_position_is_read_whole(
    stored: set[tuple[int, int]], since: dict[int, int]
) -> None:
    """No state partition is left out because no observation names it."""
    rows = pairs_of(table(stored).filter(at_or_above(since, "offset")))

    assert rows == {(p, offset) for p, offset in stored if offset >= since.get(p, 0)}


def test_a_range_that_is_only_a_gap_counts_by_its_gap() -> None:
    """An offset in any of the columns is enough."""
    rows = pa.table({"state_partition": [0, 0], "last_offset": pa.array([None, 3], pa.int64()), "gap_last": [9, None]})

    assert rows.filter(at_or_above({0: 5}, "last_offset", "gap_last")).num_rows == 1
    assert rows.filter(pc.field("state_partition") == 0).num_rows == 2
