"""The rules of many batches at once are the model's rules of each."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from definitions.batch_laws import in_order, terminal_count
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import batches as some_batches

from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.model.batches import StateBatch
from acktrail_expectations.frames.frame_columns import RecordBatches
from acktrail_expectations.observed_cluster import ObservedCluster

CLUSTER = ObservedCluster(delivery_states=(0, 2, 4))
Lists = list[tuple[StateBatch, ...] | None]

inverted_too = st.lists(
    st.builds(
        StateBatch,
        first_offset=st.integers(0, 12),
        last_offset=st.integers(0, 12),
        delivery_state=st.integers(0, 4),
        delivery_count=st.integers(-1, 30),
    ),
    max_size=4,
).map(tuple)
many = st.lists(st.one_of(st.none(), inverted_too, some_batches(high=12)), max_size=8)


def column(lists: Lists) -> pa.Array:
    rows = [None if batches is None else [asdict(each) for each in batches] for batches in lists]
    return pa.array(rows, BATCHES)


@given(many)
def test_order_laws_do_not_stand_in_for_each_other(lists: Lists) -> None:
    """Inverted, out of order and overlapping each mean what they say, pair by pair; a record breaks one of them exactly
    when the model finds a disorder in it."""
    taken = RecordBatches.of(column(lists))

    def proper(batches: tuple[StateBatch, ...]) -> list[set[int]]:
        return [set(range(b.first_offset, b.last_offset + 1)) for b in batches if b.first_offset <= b.last_offset]

    broken = [taken.breaking(rule, CLUSTER) for rule in ("batch_first_le_last", "batches_ascending")]
    assert [not in_order(b or ()) for b in lists] == (
        broken[0] | broken[1] | taken.breaking("batches_non_overlapping", CLUSTER)
    ).tolist()
    assert [any(b.last_offset < b.first_offset for b in bs or ()) for bs in lists] == taken.breaking(
        "batch_first_le_last", CLUSTER
    ).tolist()
    firsts = [[b.first_offset for b in bs or ()] for bs in lists]
    assert [f != sorted(f) for f in firsts] == taken.breaking("batches_ascending", CLUSTER).tolist()
    shared = [sum(map(len, proper(bs or ()))) > len(set().union(*proper(bs or ()))) for bs in lists]
    assert shared == taken.breaking("batches_non_overlapping", CLUSTER).tolist()


@given(many, st.lists(st.integers(0, 14), min_size=8, max_size=8))
def test_bounds_are_taken_from_the_record_s_own_row(lists: Lists, bounds: list[int]) -> None:
    """Start, end and limit bound the batches of their own record and no others."""
    taken = RecordBatches.of(column(lists))
    own = np.array(bounds[: len(lists)], np.int64)
    rows = list(zip(lists, own.tolist(), strict=True))

    assert [any(b.first_offset < s for b in bs or ()) for bs, s in rows] == taken.breaking(
        "batches_not_below_start", CLUSTER, own
    ).tolist()
    assert [any(b.last_offset >= e for b in bs or ()) for bs, e in rows] == taken.breaking(
        "batches_below_log_end", CLUSTER, own
    ).tolist()
    assert [any(b.delivery_count > m for b in bs or ()) for bs, m in rows] == taken.breaking(
        "delivery_count_within_limit", CLUSTER, own
    ).tolist()


@given(many)
def test_states_and_counts(lists: Lists) -> None:
    """A state or count outside what is allowed names its record."""
    taken = RecordBatches.of(column(lists))

    states = [any(b.delivery_state not in (0, 2, 4) for b in bs or ()) for bs in lists]
    counts = [any(not 0 <= b.delivery_count <= 25 for b in bs or ()) for bs in lists]

    assert states == taken.breaking("delivery_state_allowed", CLUSTER).tolist()
    assert counts == taken.breaking("delivery_count_possible", CLUSTER).tolist()


@given(many, st.lists(st.integers(0, 14), min_size=8, max_size=8))
def test_terminal_offsets_are_counted_as_the_model_counts(lists: Lists, starts: list[int]) -> None:
    """Terminal offsets of each record are the model's count above its own start offset."""
    own = starts[: len(lists)]

    expected = [terminal_count(bs or (), start) for bs, start in zip(lists, own, strict=True)]

    assert expected == RecordBatches.of(column(lists)).terminal_offsets(np.array(own, np.int64)).tolist()


def test_chunks_and_slices_keep_their_records() -> None:
    """Batches stay with their record when a column is sliced or comes in chunks."""
    one = (StateBatch(first_offset=5, last_offset=4, delivery_state=2, delivery_count=1),)
    whole = pa.chunked_array([column([None, (), one]), column([one, ()])])

    assert RecordBatches.of(whole).breaking("batch_first_le_last", CLUSTER).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert RecordBatches.of(whole.slice(2, 2)).breaking("batch_first_le_last", CLUSTER).tolist() == [True, True]


def test_a_batch_with_a_null_is_no_batch() -> None:
    """A null inside a batch is refused: a comparison with it would hold by accident."""
    row = [{"first_offset": 1, "last_offset": None, "delivery_state": 2, "delivery_count": 1}]

    with pytest.raises(ValueError, match="null"):
        RecordBatches.of(pa.array([row], BATCHES))
