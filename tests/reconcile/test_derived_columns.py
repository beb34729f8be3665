"""Columns computed for many share partitions at once against the model, one share partition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jobs.world import batch
from samples.random_records import INT64, any_batches, batches, disjoint_batches, keys

from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.format.columns.share_partition_keys import (
    coordinator_keys,
    first_matches,
    key_codes,
    state_partitions_of,
)
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, TERMINAL_STATES, DeliveryState, StateBatch
from acktrail.model.replay import SharePartitionState, counts_by_state
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition, state_partition_of
from acktrail.reconcile.derived_columns import STATE_RULES, derived_columns, int64

STATE = pa.schema([f for f in SHARE_PARTITION_STATES if f.name in {*SharePartitionState.__slots__, *KEY_COLUMNS}])
few = st.integers(0, 20)
offsets = st.one_of(few, INT64)
regular_batches = st.one_of(disjoint_batches(), disjoint_batches(start=5))


@st.composite
def nearly_regular_batches(draw: st.DrawFn) -> tuple[StateBatch, ...]:
    """Two neighbours that share an offset, or the later one of which ends before it begins."""
    first, last = draw(few), draw(few)
    return (batch(first, first + last), batch(first + last, first + last - draw(st.integers(0, 1))))


states = st.builds(
    SharePartitionState,
    key=keys,
    snapshot_epoch=few,
    state_epoch=st.none() | few,
    leader_epoch=st.none() | few,
    start_offset=st.none() | offsets,
    delivery_complete_count=st.none() | few,
    batches=st.one_of(regular_batches, regular_batches, nearly_regular_batches(), batches(), any_batches),
)


def state_row(state: SharePartitionState | None) -> dict[str, Any]:
    if state is None:
        return {"group_id": "none", "topic_id": "none", "partition": 0}
    numbers = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in {"key", "batches"}}
    own = [{f.name: getattr(each, f.name) for f in fields(each)} for each in state.batches]
    return {**{name: getattr(state.key, name) for name in KEY_COLUMNS}, **numbers, "batches": own}


def broken_rules(state: SharePartitionState) -> tuple[str, ...]:
    """Names of the rules that `state` breaks, in the order of ``STATE_RULES``."""
    batches, start, done = state.batches, state.start_offset, state.delivery_complete_count
    ascending = sorted((b.first_offset, b.last_offset) for b in batches if b.first_offset <= b.last_offset)
    least = sum(counts_by_state(state)[kind] for kind in TERMINAL_STATES)
    broken = {
        "batch_first_le_last": any(b.first_offset > b.last_offset for b in batches),
        "batches_ascending": any(later.first_offset < batch.first_offset for batch, later in pairwise(batches)),
        "batches_non_overlapping": any(first <= last for (_, last), (first, _) in pairwise(ascending)),
        "batches_not_below_start": start is not None and any(b.first_offset < start for b in batches),
        "delivery_state_allowed": any(b.delivery_state not in DURABLE_STATES for b in batches),
        "delivery_count_possible": any(not 0 <= b.delivery_count <= HIGHEST_DELIVERY_COUNT for b in batches),
        "uninitialized_without_batches": start is None and bool(batches),
        "delivery_complete_count_covers": done is not None and start is not None and done < least,
    }
    return tuple(rule for rule in STATE_RULES if broken[rule])


@given(st.lists(st.none() | states, max_size=6))
@settings(max_examples=150)
def test_derived_columns_are_what_the_model_derives(rows: list[SharePartitionState | None]) -> None:
    """Any batches, in any order: each derived number and each broken rule is the one of the model."""
    found = pa.table(derived_columns(pa.Table.from_pylist([*map(state_row, rows)], schema=STATE))).to_pylist()
    assert found == [derived(state) for state in rows]


def derived(state: SharePartitionState | None) -> dict[str, Any]:
    counts = {} if state is None else counts_by_state(state)
    kinds = ("available", "acknowledged", "archiving", "archived")
    return {
        "first_unfinished_offset": None if state is None else int64(state.first_unfinished_offset),
        "end_offset": None if state is None else int64(state.end_offset),
        **{f"{kind}_records": None if state is None else int64(counts[DeliveryState[kind.upper()]]) for kind in kinds},
        "max_delivery_count": None if state is None else max((b.delivery_count for b in state.batches), default=None),
        "broken_rules": [] if state is None else list(broken_rules(state)),
    }


@given(st.lists(keys, max_size=8), st.integers(1, 2**31 - 1))
@example([SharePartition(group_id="ünïcode 🦊", topic_id="t", partition=1)], 50)  # type: ignore[arg-type]
def test_share_partitions_lie_where_a_broker_looks_for_them(found: list[SharePartition], count: int) -> None:
    """The hash of many keys at once is Java's, for any text."""
    rows = key_table(found)
    assert state_partitions_of(rows, count).tolist() == [state_partition_of(key, count) for key in found]
    texts = [text for piece in rows.to_batches() for text in coordinator_keys(piece).to_pylist()]
    assert texts == [key.coordinator_key for key in found]


def key_table(found: Sequence[SharePartition]) -> pa.Table:
    columns = {name: [getattr(key, name) for key in found] for name in KEY_COLUMNS}
    return pa.table(columns, schema=pa.schema([(n, SHARE_PARTITION_STATES.field(n).type) for n in KEY_COLUMNS]))


few_keys = st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.none() | few), max_size=12)


@given(few_keys, few_keys)
def test_the_first_row_with_the_same_key_is_found(rows: list[tuple[Any, ...]], among: list[tuple[Any, ...]]) -> None:
    """Null equals null; a key that is not there has no row."""
    schema = pa.schema([("a", pa.string()), ("b", pa.int64())])

    def table(of: list[tuple[Any, ...]]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in of], schema=schema)

    expected = [among.index(row) if row in among else None for row in rows]
    assert first_matches(table(rows), table(among), schema.names).to_pylist() == expected
    codes = key_codes(table(rows).columns).tolist()
    assert [rows[codes.index(code)] for code in codes] == rows
