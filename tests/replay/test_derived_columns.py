"""Columns computed for many share partitions at once against the model, one share partition at a time; the cluster's
answers as columns beside them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jobs.world import batch
from samples.random_records import INT64, any_batches, batches, disjoint_batches, keys

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES, TABLES
from acktrail.format.columns.share_partition_keys import coordinator_keys, first_matches, key_codes, state_partitions_of
from acktrail.history.observed_run import described_shares, read_descriptions
from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, TERMINAL_STATES, DeliveryState, StateBatch
from acktrail.model.replay import SharePartitionState, counts_by_state
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition, state_partition_of
from acktrail.replay.derived_columns import LARGE, STATE_RULES, derived_columns, int64
from acktrail.tables.delta.store import Tables

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
    end, last = int64(state.end_offset), max((b.last_offset for b in batches), default=None)
    counted = None if start is None or done is None else done + (0 if abs(start) >= LARGE else start)
    numbers = [0 if number is None else number for number in (state.key.partition, state.snapshot_epoch, start, done)]
    broken = {
        "batch_first_le_last": any(b.first_offset > b.last_offset for b in batches),
        "batches_ascending": any(later.first_offset < batch.first_offset for batch, later in pairwise(batches)),
        "batches_non_overlapping": any(first <= last for (_, last), (first, _) in pairwise(ascending)),
        "batches_not_below_start": start is not None and any(b.first_offset < start for b in batches),
        "delivery_state_allowed": any(b.delivery_state not in DURABLE_STATES for b in batches),
        "delivery_count_possible": any(not 0 <= b.delivery_count <= HIGHEST_DELIVERY_COUNT for b in batches),
        "uninitialized_without_batches": start is None and bool(batches),
        "delivery_complete_count_covers": done is not None and start is not None and done < least,
        "start_offset_le_end_offset": start is not None and last is not None and last + 1 < start,
        "field_values_possible": min([*numbers, *(b.first_offset for b in batches)]) < 0 or last == 2**63 - 1,
        "delivery_complete_count_in_window": counted is not None and end is not None and counted > end,
    }
    rules = rule_catalogue().by_id
    return tuple(r for r in STATE_RULES if broken[r] and not any(broken[each] for each in rules[r].presumes))


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


COMMON = {"cluster_id": "c1", "run_id": "r1", "observed_at": dt.datetime(2026, 3, 1, tzinfo=dt.UTC)}
SHARE = {"group_id": "a", "topic": "orders", "topic_id": "t", "partition": 0, "start_offset": 3, "lag": 7}
LOG = {"topic": "orders", "topic_id": "t", "partition": 0, "log_start_offset": 1, "log_end_offset": 10}
GROUP = {"group_id": "a", "group_type": "Share", "group_state": "Stable", "error_code": 0}
FAILED = {"group_id": "a", "error_code": 15}
USUAL = {
    "is_listed": True,
    "start_offset": 3,
    "lag": 7,
    "error": None,
    "is_group_present": True,
    "is_authorized": True,
    "log_start_offset": 1,
    "log_end_offset": 10,
}
NO_SHARE = {"is_listed": False, "start_offset": None, "lag": None}
NO_LOG = {"log_start_offset": None, "log_end_offset": None}


def beside(folder: Path, rows: Mapping[str, list[Mapping[str, Any]]], *keys: tuple[str, str | None, int]) -> Any:
    """What `after` says beside each of `keys`, with `described_topic` and `group_state`; and who was only described."""
    tables = Tables(TablesConfig(uri=str(folder)))
    for name, own in rows.items():
        tables.append(name, [{**COMMON, **({} if name == "topics" else {"phase": "after"}), **row} for row in own])
    snapshot = tables.snapshot("offset_observations")
    paths = [] if snapshot is None else [file.path for file in snapshot.files()]
    described = replace(read_descriptions(tables, "r1"), shares=described_shares(tables, "r1", paths))
    schema = pa.schema([TABLES["offset_observations"].field(name) for name in KEY_COLUMNS])
    asked = pa.Table.from_pylist([dict(zip(KEY_COLUMNS, key, strict=True)) for key in keys], schema=schema)
    found = pa.table(described.beside(asked)).to_pylist()
    for row in found:
        assert not row["is_listed_before"], "nothing was asked before"
        assert row["is_group_present_before"] is False
    kept = [
        {name.removesuffix("_after"): value for name, value in row.items() if "before" not in name} for row in found
    ]
    return kept, [tuple(row.values()) for row in described.only_described(asked).to_pylist()]


@pytest.mark.parametrize(
    ("offsets", "groups", "expected"),
    [
        ([SHARE, LOG], [GROUP], {}),
        ([{**SHARE, "start_offset": None, "lag": None}, LOG], [GROUP], {"start_offset": None, "lag": None}),
        ([SHARE, {**SHARE, "start_offset": 9}, LOG], [{**GROUP, "group_type": None}], {}),
        ([SHARE], [{**GROUP, "group_type": "consumer"}], {"is_group_present": False, "group_state": None, **NO_LOG}),
        ([{**SHARE, "topic_id": None}, LOG], [GROUP], NO_SHARE),
        ([{**SHARE, "error_code": 3, "error": ""}, LOG], [GROUP], {"error": "error 3"}),
        ([{**SHARE, "error_code": 29, "error": "no"}, LOG], [GROUP], {"error": "no", "is_authorized": False}),
        ([FAILED, LOG], [GROUP], {"error": "error 15", **NO_SHARE}),
        (
            [{**FAILED, "error": "GROUP_AUTHORIZATION_FAILED: no"}, LOG],
            [GROUP],
            {"error": "GROUP_AUTHORIZATION_FAILED: no", "is_authorized": False, **NO_SHARE},
        ),
        ([SHARE, LOG], [{**GROUP, "error_code": 69}], {"is_group_present": False}),
        ([SHARE, LOG], [{**GROUP, "error_code": 15}], {"is_group_present": None}),
        ([SHARE, LOG], [{**GROUP, "error_code": 30}], {"is_group_present": None, "is_authorized": False}),
        ([SHARE, LOG], [], {"is_group_present": False, "group_state": None}),
    ],
)
def test_each_answer_lies_beside_its_share_partition(
    tmp_path: Path, offsets: list[Mapping[str, Any]], groups: list[Mapping[str, Any]], expected: Mapping[str, Any]
) -> None:
    """Of several rows the first of a phase counts; errors, missing rights and absent groups are read as they are."""
    rows = {"offset_observations": offsets, "group_observations": groups}
    (found,), _ = beside(tmp_path, rows, ("a", "t", 0))
    assert {name: found[name] for name in USUAL} == {**USUAL, **{n: expected[n] for n in USUAL if n in expected}}
    assert found["group_state"] == expected.get("group_state", "Stable")


def test_topics_have_the_newest_name_and_status(tmp_path: Path) -> None:
    """By their id; an id that no listing had has none, and a null id no log. Who was only described comes once."""
    topics = [
        {"topic_id": "t", "topic": name, "status": "present", "last_seen_at": COMMON["observed_at"] + dt.timedelta(age)}
        for age, name in enumerate(("old", "new"))
    ]
    nameless = {**SHARE, "topic_id": None, "error_code": 3}
    rows = {"offset_observations": [SHARE, {**LOG, "topic_id": None}, nameless, nameless], "topics": topics}
    (known, unknown), others = beside(tmp_path, rows, ("a", "t", 0), ("b", None, 0))
    assert (known["topic"], known["topic_status"], known["described_topic"]) == ("new", "present", "orders")
    assert (unknown["topic"], unknown["topic_status"], unknown["log_end_offset"]) == (None, None, None)
    assert others == [("a", None, 0)]
