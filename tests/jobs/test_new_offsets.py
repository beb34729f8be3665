"""Where new records lie, and pieces of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from acktrail.history.unread_offsets import new_offsets

addresses = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=30)


@given(addresses, st.dictionaries(st.integers(0, 2), st.integers(0, 45)), st.integers(1, 9))
def test_pieces_hold_every_new_record_and_no_more_than_asked(
    records: set[tuple[int, int]], positions: dict[int, int], quota: int
) -> None:
    """Cut piece by piece, each new record lies in one piece, and every piece but the last is full: holes cost none."""
    rows = pa.Table.from_pylist(
        [{"state_partition": number, "offset": offset} for number, offset in records],
        schema=pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())]),
    )
    found = new_offsets([rows.filter(pc.equal(pc.bit_wise_and(rows["offset"], 3), n)) for n in range(4)], positions)
    for number in range(3):
        own = sorted(o for p, o in records if p == number and o >= positions.get(number, 0))
        assert (number in found) == bool(own)
        if not own:
            continue
        new = found[number]
        assert (new.first, new.end) == (own[0], own[-1] + 1)
        bound, pieces = new.first, list[list[int]]()
        while bound < new.end:
            end = new.end_of(bound, quota)
            pieces.append([offset for offset in own if bound <= offset < end])
            bound = end
        assert [offset for piece in pieces for offset in piece] == own
        assert all(len(piece) == quota for piece in pieces[:-1])
