"""Each kind of damage is caught by the expectation that is meant for it and by no other; the rules of many batches at
once are the model's rules of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise

import pandas as pd
import pyarrow as pa
import pytest
from definitions.batch_rules import in_order, terminal_count
from expectations.sample_damage import (
    CLUSTER,
    DAMAGE,
    EXPORTED,
    OBSERVED,
    RECORDS,
    STATES,
    failing,
    failing_by_damage,
    harmed,
    many_updates,
    moved_away,
    observed_frame,
    record_frame,
)
from expectations.sample_tables import changed, cluster, record_frames, row_where
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import batches as some_batches
from state_topics.coordinator_log import Coordinator, share_partition

from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.model.batches import StateBatch
from acktrail.model.records import LEAST_VALUES
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.replay.derived_columns import StateBatches
from acktrail_expectations.batch_expectations import BATCH_EXPECTATIONS, broken_rows
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.frame_columns import ObservedCluster, batch_columns
from acktrail_expectations.frames.table_frames import share_partition_states_frame

pytestmark = pytest.mark.usefixtures("plain_engine")


@pytest.mark.parametrize("suite", DAMAGE)
def test_damage_breaks_its_own_rules(suite: str) -> None:
    """And no other; without damage none is broken but what is for information. No rule of the suite is without damage
    that breaks it."""
    frames, expected = zip(*DAMAGE[suite].frames, strict=True)

    assert failing_by_damage(suite, frames, DAMAGE[suite].apart) == [*expected]
    assert {rule.id for rule in rule_catalogue().rules if suite in rule.suites} == set().union(*expected)


def test_snapshot_epochs_begin_at_0_after_a_tombstone() -> None:
    """A snapshot with another epoch than 0 right after a tombstone means that one before it is missing."""
    life = Coordinator()
    life.initialize(share_partition())
    life.delete(share_partition())
    life.initialize(share_partition())

    assert failing("state_records", record_frame(life.table())) == set()
    harmed = changed(life.table(), 2, snapshot_epoch=1)
    assert failing("state_records", record_frame(harmed)) == {"snapshot_epoch_step"}


@pytest.mark.few(2)
@pytest.mark.parametrize(("dead_letters", "most"), [(False, 501), (True, 500)])
def test_a_missed_snapshot(dead_letters: bool, most: int) -> None:
    """More updates than a broker's configuration can allow; one more is tolerated where an older release did it. The
    count continues from piece to piece of a log."""
    observed = replace(CLUSTER, has_dead_letters=dead_letters)
    records = many_updates(most + 1)

    assert failing("state_records", record_frame(records.slice(0, most + 1), observed)) == set()
    frames = record_frames(records, observed)
    pieces = [frames.add(records.slice(at, 200), since={}) for at in range(0, records.num_rows, 200)]
    assert [failing("state_records", piece) for piece in pieces] == [set(), set(), {"snapshot_cadence"}]


def test_what_is_not_known_is_not_compared() -> None:
    """An empty state partition needs no export; the first validation of a state topic has no number of partitions to
    compare with; a group's records in flight are compared with nothing where its configuration is not known; and no
    record is on a wrong state partition where their number is not known."""
    empty = changed(OBSERVED, row_where(OBSERVED, topic_id="state", partition=1), log_end_offset=0)
    assert failing("state_partitions", observed_frame(EXPORTED | {"ends": {0: 5, 2: 5}}, empty)) == set()
    first = observed_frame(EXPORTED | {"partition_counts": {}})
    locks = share_partition_states_frame(STATES, cluster=cluster(configs={}))
    for suite, frame, rule in (
        ("state_partitions", first, "state_topic_partition_count_constant"),
        ("share_partition_states", locks, "inflight_within_lock_limit"),
    ):
        results = evaluate(suite, checks_of(suite), frame, str)
        assert [each.state.value for each in results if each.expectation == rule] == ["not_evaluated"]
    nowhere = record_frames(moved_away(RECORDS), ObservedCluster(allows_archiving=False))
    assert failing("state_records", nowhere.add(moved_away(RECORDS), since={})) == set()


def test_archiving_passes_where_the_release_has_it() -> None:
    """Archiving is allowed from Kafka 4.4 on, and where nothing says which release it is."""
    archiving = harmed(RECORDS, {"at": (0, 3), "batches": [(0, 9, 3, 1)]})

    assert failing("state_records", record_frame(archiving, ObservedCluster())) == set()


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


def column(lists: Lists) -> pa.ChunkedArray:
    """As a column of a table comes: in chunks, of which the first one is a slice."""
    rows = [None if batches is None else [asdict(each) for each in batches] for batches in lists]
    head = pa.array([[], *rows[:3]], BATCHES).slice(1)
    return pa.chunked_array([head, pa.array(rows[3:], BATCHES)])


def frame_of_lists(lists: Lists, numbers: list[int]) -> pd.DataFrame:
    """As many records; each number is all that bounds its record."""
    own = pd.array(numbers[: len(lists)], "Int64")
    batches = pd.Series(column(lists), dtype=pd.ArrowDtype(column(lists).type))
    bounds = {bound for _, bound in BATCH_EXPECTATIONS.values() if bound is not None}
    return pd.DataFrame({"batches": batches, **dict.fromkeys((*LEAST_VALUES, *bounds), own)})


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
    "delivery_state_allowed": lambda bs, archives: any(
        b.delivery_state not in ((0, 2, 3, 4) if archives else (0, 2, 4)) for b in bs
    ),
    "delivery_count_possible": lambda bs, _: any(not 0 <= b.delivery_count <= 25 for b in bs),
    "delivery_count_within_limit": lambda bs, limit: any(b.delivery_count > limit for b in bs),
    "acknowledged_count_ge_1": lambda bs, _: any((b.delivery_state, b.delivery_count) == (2, 0) for b in bs),
    "available_count_lt_limit": lambda bs, limit: any(b.delivery_state == 0 and b.delivery_count >= limit for b in bs),
    "mergeable_neighbours": lambda bs, _: any(follows(a, b) for a, b in pairwise(bs)),
    "uninitialized_without_batches": lambda bs, marked: bool(bs) and marked != 0,
    "start_offset_le_end_offset": lambda bs, start: bool(bs) and max(b.last_offset for b in bs) + 1 < start,
    "batches_below_log_end": lambda bs, end: any(b.last_offset >= end for b in bs),
}


@pytest.mark.parametrize("rule", BATCH_EXPECTATIONS)
@given(lists=many, numbers=st.lists(st.integers(0, 14), min_size=8, max_size=8))
def test_a_rule_of_many_batches_is_that_of_each(rule: str, lists: Lists, numbers: list[int]) -> None:
    """A record breaks a rule where its own batches do, by the number in its own row."""
    broken = broken_rows(rule, frame_of_lists(lists, numbers)).tolist()
    assert broken == [PLAIN[rule](batches or (), number) for batches, number in zip(lists, numbers, strict=False)]


@given(many)
def test_batches_in_order_break_none_of_three_rules(lists: Lists) -> None:
    """And where the model finds a disorder one of them is broken."""
    frame = frame_of_lists(lists, [0] * len(lists))
    orders = zip(*(broken_rows(rule, frame) for rule in [*BATCH_EXPECTATIONS][:3]), strict=True)
    assert [True in own for own in orders] == [not in_order(batches or ()) for batches in lists]


@given(many, st.lists(st.integers(0, 14), min_size=8, max_size=8))
def test_numbers_of_batches_are_those_of_the_model(lists: Lists, starts: list[int]) -> None:
    """Terminal offsets of each record are the model's count above its own start offset; values are possible where no
    batch has one that no broker writes."""
    found = batch_columns(frame_of_lists(lists, starts))

    counted = [terminal_count(bs or (), start) for bs, start in zip(lists, starts, strict=False)]
    assert found["terminal_offsets"].tolist() == counted
    possible = [all(b.first_offset >= 0 and b.last_offset < 2**63 - 1 for b in bs or ()) for bs in lists]
    assert found["are_values_possible"].fillna(value=True).tolist() == possible


def test_a_batch_with_a_null_is_no_batch() -> None:
    """A null inside a batch is refused: a comparison with it would hold by accident."""
    row = [{"first_offset": 1, "last_offset": None, "delivery_state": 2, "delivery_count": 1}]

    with pytest.raises(ValueError, match="null"):
        StateBatches.of(pa.table({"start_offset": [0], "batches": pa.array([row], BATCHES)}))
