"""Sets of offsets: those ever archived, ranges, stored ones cut into pieces, and archived ones beside dead letters."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.history.dead_letter_reader import DeadLetterDoubt, doubted, match_dead_letters
from acktrail.history.no_record_offsets import offsets_outside
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.replay import newest_offsets
from acktrail.replay.newest_offsets import RANGES, ArchivedRanges, offset_counts
from acktrail.replay.stored_offsets import OffsetRuns, stored_offsets

GREATEST = 2**63 - 1

bounds = st.tuples(st.integers(-3, 30), st.integers(0, 6)).map(lambda drawn: (drawn[0], sum(drawn)))
added = st.lists(st.lists(st.tuples(st.integers(0, 4), bounds), max_size=8), max_size=4)


@given(added, st.sampled_from([0, 5, 200_000]))
@settings(max_examples=100)
def test_they_are_sets(pieces: list[list[tuple[int, tuple[int, int]]]], kept: int) -> None:
    """However they come, and however often they are united meanwhile: the distinct offsets of each number, in the
    longest ranges."""
    own, plain = ArchivedRanges(), defaultdict[int, set[int]](set)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newest_offsets, "_ROWS_KEPT", kept)
        for piece in pieces:
            own.add(*columns(piece))
            for number, (first, last) in piece:
                plain[number].update(range(first, last + 1))
    lists = own.lists(6)
    assert lists.type == RANGES
    assert offset_counts(lists).to_pylist() == [len(plain[number]) for number in range(6)]
    for number, found in enumerate(lists.to_pylist()):
        ranges = [(each["first_offset"], each["last_offset"]) for each in found]
        assert sorted(plain[number]) == [offset for first, last in ranges for offset in range(first, last + 1)]
        assert all(before + 1 < first for (_, before), (first, _) in pairwise(ranges))


def test_the_greatest_offsets() -> None:
    """The greatest offset has no one after it; a count that no column can hold is not known."""
    own = ArchivedRanges()
    own.add(*columns([(0, (0, GREATEST - 1)), (0, (GREATEST, GREATEST)), (0, (-5, -1))]))
    own.add(*columns([(1, (GREATEST - 1, GREATEST)), (1, (GREATEST, GREATEST))]))
    own.add(*columns([(2, (1, GREATEST)), (3, (-GREATEST - 1, GREATEST))]))
    assert offset_counts(own.lists(5)).to_pylist() == [None, 2, GREATEST, None, 0]


def columns(piece: list[tuple[int, tuple[int, int]]]) -> tuple[npt.NDArray[np.int64], pa.StructArray]:
    ranges = [{"first_offset": first, "last_offset": last} for _, (first, last) in piece]
    return np.array([number for number, _ in piece], np.int64), pa.array(ranges, RANGES.value_type)


ranges = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda drawn: (drawn[0], sum(drawn)))
deeds = st.lists(st.tuples(st.booleans(), ranges), max_size=12)


@given(deeds, ranges)
def test_offset_ranges_behave_as_a_set(done: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    """Whatever is put in and taken out: what lies outside is what a plain set lacks, in the longest ranges."""
    own, plain = OffsetRanges(), set[int]()
    for is_added, (first, last) in done:
        (own.add if is_added else own.remove)(first, last)
        (plain.update if is_added else plain.difference_update)(range(first, last + 1))
    outside = list(own.outside(*asked))
    told = [offset for first, last in outside for offset in range(first, last + 1)]
    assert told == [offset for offset in range(asked[0], asked[1] + 1) if offset not in plain]
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(outside))


SCHEMA = pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())])


def runs_of(offsets: set[int]) -> OffsetRuns:
    rows = pa.Table.from_pylist([{"state_partition": 0, "offset": offset} for offset in offsets], schema=SCHEMA)
    (found,) = stored_offsets(rows.to_batches(), {}).runs.values()
    return found


@given(st.sets(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 9))
def test_pieces_hold_every_offset_and_no_more_than_asked(offsets: set[int], quota: int) -> None:
    """Cut piece by piece, each offset lies in one piece, and every piece but the last is full: holes cost none."""
    runs, own = runs_of(offsets), sorted(offsets)
    bound, pieces = own[0], list[list[int]]()
    while bound <= own[-1]:
        end = runs.end_after(bound, quota)
        pieces.append([offset for offset in own if bound <= offset < end])
        bound = end
    assert bound == own[-1] + 1
    assert [offset for piece in pieces for offset in piece] == own
    assert all(len(piece) == quota for piece in pieces[:-1])


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=8)
OFFSETS = st.lists(st.integers(0, 40), max_size=20)


@given(SPANS, OFFSETS)
def test_counts_are_those_of_sets(archived: list[tuple[int, int]], offsets: list[int]) -> None:
    """Ranges may overlap and offsets come twice: each offset counts once, each record is in one count."""
    found = match_dead_letters(archived, offsets)

    there = {offset for first, last in archived for offset in range(first, last + 1)}
    lettered = set(offsets)
    assert found.archived == len(there)
    assert found.records == len(offsets)
    assert found.with_record == len(there & lettered)
    assert found.without_record == len(there - lettered)
    assert found.not_archived == len(lettered - there)
    assert found.repeated == len(offsets) - len(lettered)
    assert found.archived == found.with_record + found.without_record
    assert found.records == found.with_record + found.not_archived + found.repeated


def test_long_ranges_cost_nothing() -> None:
    """A range of all offsets that there are is no list of them."""
    found = match_dead_letters([(0, 2**63 - 1)], [2**63 - 1])
    assert (found.with_record, found.without_record) == (1, 2**63 - 1)


@given(SPANS, OFFSETS, st.sets(st.sampled_from(DeadLetterDoubt)))
def test_a_doubt_leaves_numbers_unknown(
    archived: list[tuple[int, int]], offsets: list[int], doubts: set[DeadLetterDoubt]
) -> None:
    """What a doubt touches is null and never 0; all else stays, and how many records there are is never in doubt."""
    plain = match_dead_letters(archived, offsets)
    found = doubted(plain, doubts)

    assert (found.records, found.repeated) == (plain.records, plain.repeated)
    assert (found.not_archived is None) == bool(doubts - {DeadLetterDoubt.LETTERS})
    assert (found.without_record is None) == bool(doubts - {DeadLetterDoubt.HISTORY})
    assert (found.with_record is None) == bool(doubts & {DeadLetterDoubt.TOPIC, DeadLetterDoubt.NAME})
    assert found.archived == (None if DeadLetterDoubt.NAME in doubts else plain.archived)


SPANS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 3)), max_size=8)


@given(SPANS, SPANS)
def test_offsets_without_those_that_are_known(
    archived: list[tuple[str, int, int]], asked: list[tuple[str, int, int]]
) -> None:
    """As sets of offsets say, for each share partition; spans may overlap, and be asked about twice."""

    def offsets(spans: list[tuple[str, int, int]], group: str) -> set[int]:
        return {at for name, first, more in spans if name == group for at in range(first, first + more + 1)}

    common = {"topic_id": "t", "partition": 0}
    rows = pa.Table.from_pylist([{"group_id": group, **common} for group in "abc"])
    ranges = [[{"first_offset": at, "last_offset": at} for at in sorted(offsets(archived, group))] for group in "abc"]
    spans = [{"group_id": g, **common, "first_offset": first, "last_offset": first + more} for g, first, more in asked]
    keys = [("group_id", pa.string()), ("topic_id", pa.string()), ("partition", pa.int64())]
    schema = pa.schema([*keys, *RANGES.value_type])
    found = offsets_outside(pa.array(ranges, RANGES), rows, pa.Table.from_pylist(spans, schema=schema))
    assert found.to_pylist() == [len(offsets(archived, group) - offsets(asked, group)) for group in "abc"]
