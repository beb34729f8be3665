"""Columns computed for many share partitions at once against the model, one share partition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest
from definitions.state_rules import broken_rules
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
from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.model.reconciliation import DescribedPartition, ReconciliationInput, TopicStatus, Verdict, reconcile
from acktrail.model.replay import SharePartitionState, counts_by_state
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition, state_partition_of
from acktrail.reconcile import verdict_rows
from acktrail.reconcile.derived_columns import derived_columns, int64
from acktrail.reconcile.verdict_rows import verdicts_of

SAMPLE = {
    "is_listed": pa.bool_(),
    "start_offset": pa.int64(),
    "lag": pa.int64(),
    "error": pa.string(),
    "is_group_present": pa.bool_(),
    "is_authorized": pa.bool_(),
    "log_start_offset": pa.int64(),
    "log_end_offset": pa.int64(),
}
STATE = pa.schema([f for f in SHARE_PARTITION_STATES if f.name in {*SharePartitionState.__slots__, *KEY_COLUMNS}])
EVIDENCE = pa.schema(
    [
        *STATE,
        *((f"{name}_{phase}", kind) for phase in ("before", "after") for name, kind in SAMPLE.items()),
        ("topic_status", pa.string()),
        ("incomplete", pa.string()),
        ("was_initialized", pa.bool_()),
    ]
)
IN_ORDER = {"batch_first_le_last", "batches_ascending", "batches_non_overlapping"}

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


samples = st.builds(
    DescribedPartition,
    is_listed=st.booleans(),
    start_offset=st.none() | offsets,
    lag=st.none() | few,
    error=st.none() | st.just("GROUP_ID_NOT_FOUND"),
    is_group_present=st.none() | st.booleans(),
    is_authorized=st.booleans(),
    log_start_offset=st.none() | offsets,
    log_end_offset=st.none() | offsets,
)


@st.composite
def close_samples(draw: st.DrawFn, state: SharePartitionState) -> DescribedPartition:
    """A sound description near the state: where one more or less decides the verdict."""
    start, end = state.start_offset or 0, state.end_offset or 0
    log_end = max(end, start) + draw(st.integers(-1, 3))
    lag = log_end - start - (state.delivery_complete_count or 0) + draw(st.sampled_from((-1, 0, 0, 0, 1)))
    return DescribedPartition(
        is_listed=True,
        error=draw(st.sampled_from((None, None, None, None, "COORDINATOR_LOAD_IN_PROGRESS"))),
        start_offset=start + draw(st.sampled_from((-1, 0, 0, 0, 1))),
        lag=draw(st.none() | st.just(lag)) if draw(st.booleans()) else lag,
        log_start_offset=draw(st.sampled_from((None, 0, start - 1, start, start + 1))),
        log_end_offset=draw(st.sampled_from((None, log_end, log_end, log_end))),
    )


@st.composite
def evidences(draw: st.DrawFn) -> ReconciliationInput:
    if draw(st.booleans()):
        near = SharePartitionState(
            key=draw(keys),
            snapshot_epoch=1,
            state_epoch=1,
            leader_epoch=1,
            start_offset=draw(few),
            delivery_complete_count=draw(st.none() | few),
            batches=draw(st.one_of(regular_batches, nearly_regular_batches())),
        )
        incomplete = draw(st.sampled_from((None, None, None, "the export stopped early")))
        before, after = draw(close_samples(near)), draw(close_samples(near))
        return ReconciliationInput(durable=near, before=before, after=after, incomplete=incomplete)
    return ReconciliationInput(
        durable=draw(st.none() | states),
        before=draw(samples),
        after=draw(samples),
        topic_status=draw(st.none() | st.sampled_from(TopicStatus)),
        incomplete=draw(st.none() | st.just("the export stopped early")),
        was_initialized=draw(st.booleans()),
    )


def evidence_row(evidence: ReconciliationInput) -> dict[str, Any]:
    sides = {"before": evidence.before, "after": evidence.after}
    return {
        **state_row(evidence.durable),
        **{f"{name}_{phase}": getattr(sample, name) for phase, sample in sides.items() for name in SAMPLE},
        **{name: getattr(evidence, name) for name in ("topic_status", "incomplete", "was_initialized")},
    }


def verdict_rows_of(evidences: Sequence[ReconciliationInput]) -> list[dict[str, Any]]:
    return verdicts_of(pa.Table.from_pylist([*map(evidence_row, evidences)], schema=EVIDENCE)).to_pylist()


def expected_verdict(evidence: ReconciliationInput) -> dict[str, Any]:
    found = reconcile(evidence)
    return {
        "verdict": found.verdict.value,
        "reason": found.reason,
        "durable_lag": int64(found.durable_lag),
        "unfinished_records": int64(found.unfinished_records),
    }


@given(st.lists(evidences(), min_size=1, max_size=8))
@settings(max_examples=200)
def test_verdicts_of_many_rows_are_those_of_the_law(rows: list[ReconciliationInput]) -> None:
    """Any evidence: verdict, reason and lags computed together are those of ``reconcile``."""
    assert verdict_rows_of(rows) == [*map(expected_verdict, rows)]


def test_rows_that_agree_are_decided_without_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy share partition needs no Python value; one whose start offset is behind does."""
    key = SharePartition(group_id="g", topic_id="t", partition=0)  # type: ignore[arg-type]
    state = SharePartitionState(
        key=key,
        snapshot_epoch=1,
        state_epoch=1,
        leader_epoch=1,
        start_offset=3,
        delivery_complete_count=4,
        batches=(batch(5, 8),),
    )
    agreeing = DescribedPartition(is_listed=True, start_offset=3, lag=93, log_start_offset=0, log_end_offset=100)
    ahead = DescribedPartition(is_listed=True, start_offset=4, lag=92, log_start_offset=0, log_end_offset=100)
    asked: list[ReconciliationInput] = []

    def counted(evidence: ReconciliationInput) -> Any:
        asked.append(evidence)
        return reconcile(evidence)

    monkeypatch.setattr(verdict_rows, "reconcile", counted)
    rows = [ReconciliationInput(durable=state, before=sample, after=sample) for sample in (agreeing, ahead, agreeing)]
    assert [row["verdict"] for row in verdict_rows_of(rows)] == [Verdict.MATCH, Verdict.LIVE_AHEAD, Verdict.MATCH]
    assert asked == [rows[1]]


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
    kinds = (pa.string(), pa.int64())

    def columns(of: list[tuple[Any, ...]]) -> list[pa.ChunkedArray]:
        return [pa.chunked_array([[row[n] for row in of]], kind) for n, kind in enumerate(kinds)]

    expected = [among.index(row) if row in among else None for row in rows]
    assert first_matches(columns(rows), columns(among)).to_pylist() == expected
    codes = key_codes(columns(rows)).tolist()
    assert [rows[codes.index(code)] for code in codes] == rows


@given(st.lists(states, min_size=1, max_size=4))
def test_batches_in_order_are_computed_as_columns(found: list[SharePartitionState]) -> None:
    """Rows count as regular exactly when their batches ascend without overlaps and no offset is too large to add."""
    table = pa.Table.from_pylist([*map(state_row, found)], schema=STATE)
    for state, is_regular in zip(found, verdict_rows.StateBatches.of(table).regular.tolist(), strict=True):
        numbers = [state.start_offset or 0, *(n for b in state.batches for n in (b.first_offset, b.last_offset))]
        is_small = all(abs(number) < 1 << 61 for number in numbers)
        assert is_regular is (is_small and not IN_ORDER & set(broken_rules(state)))
