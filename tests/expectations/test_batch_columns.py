"""The rules of many batches at once are the model's rules of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from definitions.batch_laws import in_order, terminal_count
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import batches as some_batches

from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.model.batches import StateBatch
from acktrail_expectations.frames.frame_columns import BATCH_RULES, ObservedCluster, RecordBatches

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


def shared(batches: tuple[StateBatch, ...]) -> bool:
    """Whether two of them cover an offset; inverted ones cover none."""
    covered = [range(b.first_offset, b.last_offset + 1) for b in batches]
    return sum(map(len, covered)) > len({offset for each in covered for offset in each})


def follows(one: StateBatch, other: StateBatch) -> bool:
    """Whether both could be one batch."""
    return (one.delivery_state, one.delivery_count) == (other.delivery_state, other.delivery_count) and (
        one.last_offset + 1 == other.first_offset
    )


PLAIN: dict[str, Callable[[tuple[StateBatch, ...], int], bool]] = {
    "batch_first_le_last": lambda bs, _: any(b.last_offset < b.first_offset for b in bs),
    "batches_ascending": lambda bs, _: any(b.first_offset < a.first_offset for a, b in pairwise(bs)),
    "batches_non_overlapping": lambda bs, _: shared(bs),
    "batches_not_below_start": lambda bs, start: any(b.first_offset < start for b in bs),
    "delivery_state_allowed": lambda bs, _: any(b.delivery_state not in (0, 2, 4) for b in bs),
    "delivery_count_possible": lambda bs, _: any(not 0 <= b.delivery_count <= 25 for b in bs),
    "delivery_count_within_limit": lambda bs, limit: any(b.delivery_count > limit for b in bs),
    "acknowledged_count_ge_1": lambda bs, _: any((b.delivery_state, b.delivery_count) == (2, 0) for b in bs),
    "available_count_lt_limit": lambda bs, limit: any(b.delivery_state == 0 and b.delivery_count >= limit for b in bs),
    "mergeable_neighbours": lambda bs, _: any(follows(a, b) for a, b in pairwise(bs)),
    "uninitialized_without_batches": lambda bs, marked: bool(bs) and marked != 0,
    "batches_below_log_end": lambda bs, end: any(b.last_offset >= end for b in bs),
}


@pytest.mark.parametrize("rule", BATCH_RULES)
@given(lists=many, numbers=st.lists(st.integers(0, 14), min_size=8, max_size=8))
def test_a_rule_of_many_batches_is_that_of_each(rule: str, lists: Lists, numbers: list[int]) -> None:
    """A record breaks a rule where its own batches do, by the number in its own row. The first three rules are broken
    exactly where the model finds a disorder."""
    taken, own = RecordBatches.of(column(lists)), np.array(numbers[: len(lists)], np.int64)
    broken = taken.breaking(rule, CLUSTER, *[own] * len(BATCH_RULES[rule].bounds)).tolist()
    assert broken == [PLAIN[rule](batches or (), number) for batches, number in zip(lists, own.tolist(), strict=True)]
    orders = np.logical_or.reduce([taken.breaking(each, CLUSTER) for each in [*BATCH_RULES][:3]])
    assert orders.tolist() == [not in_order(batches or ()) for batches in lists]


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
