"""The laws of replay; names and placement of share partitions. The combiner of batches against its pointwise
specification; ``tests/replay/test_kafka_replay.py`` has Kafka's own answers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from definitions.batch_rules import in_order, terminal_count
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch, snapshot
from samples.random_records import batches, small_records

from acktrail.model.batches import StateBatch, combine_state_batches
from acktrail.model.records import ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import (
    GroupId,
    SharePartition,
    TopicId,
    state_partition_of,
    topic_id_bytes,
    topic_id_text,
)

TOPIC_ID = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")
KEY = SharePartition(group_id=GroupId("g1"), topic_id=TOPIC_ID, partition=0)
starts = st.one_of(st.none(), st.integers(0, 45))


some_records = small_records(st.just(KEY), starts, batches()) | st.just(Tombstone(key=KEY))
logs = st.lists(some_records, max_size=12)


def fold(log: list[StateRecord]) -> SharePartitionState | None:
    state = None
    for record in log:
        state = apply(state, record)
    return state


@given(logs, some_records, logs)
def test_only_the_tail_since_the_last_snapshot_counts(
    before: list[StateRecord], base: StateRecord, after: list[StateRecord]
) -> None:
    """Nothing written before a snapshot or a tombstone has a say in the state: pruning loses no state."""
    if isinstance(base, ShareUpdate):
        return
    assert fold([*before, base, *after]) == fold([base, *after])


@given(batches(), st.integers(0, 45))
def test_the_effective_start_passes_terminal_records_only(found: tuple[StateBatch, ...], start: int) -> None:
    """Between start and effective start every offset is terminal, and the next one is not."""
    ordered = combine_state_batches(found, found, start)
    state = apply(None, snapshot(KEY, start, ordered))
    terminal = {o for b in ordered if b.is_terminal for o in range(b.first_offset, b.last_offset + 1)}
    effective = state.first_unfinished_offset

    assert effective is not None
    assert set(range(start, effective)) <= terminal
    assert effective not in terminal
    assert terminal_count(state.batches, state.start_offset) == len({o for o in terminal if o >= start})


@pytest.mark.parametrize(
    ("group", "partition", "expected"),
    [("g1", 0, 39), ("g1", 1, 38), ("g1", 2, 37), ("my-group", 0, 23), ("a:b", 0, 10)],
)
def test_the_state_partition_equals_kafkas(group: str, partition: int, expected: int) -> None:
    """Kafka's own hash put these keys on these of 50 state partitions."""
    key = SharePartition(group_id=GroupId(group), topic_id=TOPIC_ID, partition=partition)

    assert state_partition_of(key, 50) == expected


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_round_trip(raw: bytes) -> None:
    """Every id's text is 22 URL-safe characters and gives its bytes back."""
    text = topic_id_text(raw)

    assert len(text) == 22
    assert topic_id_bytes(text) == raw


@pytest.mark.parametrize("text", ["", "AAAA", "AQIDBAUGBwgJCgsMDQ4PE!", "AQIDBAUGBwgJCgsMDQ4PEB", "x" * 40])
def test_a_malformed_topic_id_is_refused(text: str) -> None:
    """Text that is not the one form of 16 bytes is refused."""
    with pytest.raises(ValueError, match=r"topic id|padding|base64|characters"):
        topic_id_bytes(TopicId(text))


def pointwise(found: tuple[StateBatch, ...], start: int | None) -> dict[int, tuple[int, int]]:
    """(count, state) of every covered offset at or above `start`: the naive version."""
    winners: dict[int, tuple[int, int]] = {}
    for each in found:
        for offset in range(max(each.first_offset, start or 0), each.last_offset + 1):
            candidate = (each.delivery_count, each.delivery_state)
            winners[offset] = max(winners.get(offset, candidate), candidate)
    return winners


@given(batches(), batches(), starts)
def test_combining_equals_the_pointwise_rule(
    so_far: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int | None
) -> None:
    """At every offset the highest count, then the highest state wins; nothing else is covered."""
    combined = combine_state_batches(so_far, new, start)

    assert pointwise(combined, None) == pointwise(so_far + new, start)


@given(batches(), batches(), starts)
def test_is_the_shortest_ordered_cover(
    so_far: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int | None
) -> None:
    """Two or more batches come out ascending, disjoint, and with no equal neighbours."""
    combined = combine_state_batches(so_far, new, start)

    assert in_order(combined)
    for left, right in pairwise(combined):
        same = (left.delivery_state, left.delivery_count) == (right.delivery_state, right.delivery_count)
        assert not (same and left.last_offset + 1 == right.first_offset)


def test_a_single_batch_is_not_changed() -> None:
    """One batch, even inverted, is returned as it stands; beside others an inverted one covers nothing."""
    inverted, other = batch(9, 5, 0), batch(20, 29)

    assert combine_state_batches((inverted,), (), None) == (inverted,)
    assert combine_state_batches((inverted,), (other,), None) == (other,)


def test_the_largest_offset_does_not_overflow() -> None:
    """A batch that ends at the largest offset there is does not overflow."""
    top = 2**63 - 1
    combined = combine_state_batches((batch(top - 5, top, 0),), (batch(top, top),), None)

    assert combined == (batch(top - 5, top - 1, 0), batch(top, top))
