"""What a broker writes in its normal life breaks no rule, however its log is cut into exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import changed, cluster, logs, record_frames, row_where, states, without
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from state_topics.coordinator_log import (
    OTHER_TOPIC,
    STATE_PARTITIONS,
    TOPIC,
    Coordinator,
    batch,
    everyday,
    share_partition,
)

from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES
from acktrail.model.share_partition import SharePartition
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.table_frames import share_partition_states_frame

pytestmark = pytest.mark.usefixtures("plain_engine")

CLUSTER = cluster(offsets=logs(ends={(topic, p): (0, 1_000) for topic in (TOPIC, OTHER_TOPIC) for p in range(3)}))
KEYS = tuple(share_partition(group, topic, p) for group, topic in (("g", TOPIC), ("h:x", OTHER_TOPIC)) for p in (0, 1))
BOUNDS = [
    "successor_epoch", "base_epoch", "base_type", "least_state_epoch", "least_leader_epoch", "least_start_offset",
    "completed_offsets", "least_completed_offsets", "kept_create_timestamp_ms",
]  # fmt: skip


CHECKS = tuple(each for each in checks_of("state_records") if each.rule.id != "record_matches_raw_bytes")


def address(row: Mapping[str, Any]) -> str:
    """Names a record."""
    return f"{row['state_partition']}/{row['offset']}"


@st.composite
def lives(draw: st.DrawFn, most: int = 40) -> Coordinator:
    """Share partitions that start, work, load, cool down, are reset, deleted and created again."""
    life = Coordinator(limit=draw(st.integers(0, 4)))
    epoch, leader = 1, 0
    for _ in range(draw(st.integers(1, most))):
        key = draw(st.sampled_from(KEYS))
        action = draw(st.sampled_from(("write", "write", "write", "load", "cool", "reset", "delete")))
        if key not in life.states or action == "reset":
            epoch += draw(st.integers(0, 2))
            life.initialize(key, state_epoch=epoch, start_offset=draw(st.one_of(st.none(), st.integers(0, 50))))
        elif action == "write":
            _work(draw, life, key)
        elif action == "load":
            leader += 1
            life.load(key, leader)
        elif action == "cool":
            life.cool()
        else:
            life.delete(key)
    return life


def _work(draw: st.DrawFn, life: Coordinator, key: SharePartition) -> None:
    state = life.states[key]
    start = (state.start_offset or 0) + draw(st.integers(0, 3))
    first = start + draw(st.integers(0, 5))
    kind = draw(st.sampled_from((0, 2, 4)))
    count = draw(st.integers(1, 4)) if kind == 0 else 5  # what is finished was delivered last
    life.write(state.key, start, batch(first, first + draw(st.integers(0, 4)), kind, count))


def failing(frame: pd.DataFrame) -> list[tuple[str, str | None]]:
    results = evaluate("state_records", CHECKS, frame, address)
    return [
        (result.expectation, result.observed_value or result.error) for result in results if result.success is False
    ]


def frame_of(records: pa.Table, since: dict[int, int] | None = None, gaps: pa.Table | None = None) -> pd.DataFrame:
    return record_frames(records, CLUSTER, gaps).add(records, since=since or {})


@settings(max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(lives(most=200))
def test_nothing_a_coordinator_writes_breaks_a_rule(life: Coordinator) -> None:
    """Records of any life, and the states replayed from them, pass their suites; what is for information may show."""
    assert failing(frame_of(life.table())) == []

    frame = share_partition_states_frame(states(life), cluster=CLUSTER)
    results = evaluate("share_partition_states", checks_of("share_partition_states"), frame, str)
    assert {r.expectation for r in results if r.success is False} <= {"terminal_prefix_absorbed"}


@settings(max_examples=12)
@given(lives(most=25), st.lists(st.integers(0, 30), min_size=STATE_PARTITIONS, max_size=STATE_PARTITIONS))
def test_an_increment_is_judged_as_in_the_whole(life: Coordinator, cut: list[int]) -> None:
    """With the records before it at hand, a later part of the log gets the same bounds as in the whole log."""
    since = dict(enumerate(cut))
    whole = frame_of(life.table())
    late = whole[whole["offset"] >= whole["state_partition"].map(since).astype("Int64")].reset_index(drop=True)

    increment = frame_of(life.table(), since=since)

    pd.testing.assert_frame_equal(late[["offset", *BOUNDS]], increment[["offset", *BOUNDS]])


COMPARED = ["offset", "expected_offset", "first_state_partition", "home_state_partition", *BOUNDS]


@pytest.mark.full
@settings(max_examples=12)
@given(lives(most=60), st.integers(1, 9), st.sets(st.integers(0, 30), max_size=2), st.integers(0, 12))
def test_a_log_in_pieces_is_judged_as_in_the_whole(life: Coordinator, size: int, nameless: set[int], lost: int) -> None:
    """However a log is cut into pieces that follow each other, each record gets the bounds that it has in the whole:
    across tombstones, resets, unreadable records and recorded gaps."""
    records = life.table().filter((pc.field("offset") != lost) | (pc.field("state_partition") != 0))
    for offset in nameless & set(records.filter(pc.field("state_partition") == 0)["offset"].to_pylist()):
        at = row_where(records, state_partition=0, offset=offset)
        records = changed(records, at, **quarantined("malformed_key", named=False))
    gaps = recorded_gap(0, lost, lost)
    frames = record_frames(records, CLUSTER, gaps)
    highest = max(records["offset"].to_pylist(), default=0)

    pieces = [
        frames.add(records.filter((pc.field("offset") >= low) & (pc.field("offset") < low + size)), since={})
        for low in range(0, highest + 1, size)
    ]

    whole = frame_of(records, gaps=gaps)[COMPARED].reset_index(drop=True)
    whole["state_partition"] = frame_of(records, gaps=gaps)["state_partition"]
    together = pd.concat(pieces).sort_values(["state_partition", "offset"], ignore_index=True)
    pd.testing.assert_frame_equal(together[[*COMPARED, "state_partition"]], whole)


@settings(max_examples=12)
@given(lives(most=25), st.integers(0, 30))
def test_a_log_whose_head_was_pruned_breaks_no_bound(life: Coordinator, pruned: int) -> None:
    """Without what was pruned before the first export there is less to compare with, and nothing that differs."""
    whole = frame_of(life.table())
    kept = life.table().filter(pc.field("offset") >= pruned)

    frame = frame_of(kept)

    late = whole[whole["offset"] >= pruned].reset_index(drop=True)
    for bound in BOUNDS:
        known = frame[bound].notna()
        pd.testing.assert_series_equal(late.loc[known, bound], frame.loc[known, bound])


def test_every_kind_of_record_is_compared() -> None:
    """The everyday log is no vacuous proof: every rule compares some of its records."""
    results = evaluate("state_records", CHECKS, frame_of(everyday().table()), address)

    assert [result.expectation for result in results if not result.element_count] == []


def recorded_gap(partition: int, first: int, last: int) -> pa.Table:
    row = {"state_partition": partition, "gap_first": first, "gap_last": last}
    return pa.Table.from_pylist([row], schema=EXPORT_RANGES).select(["state_partition", "gap_first", "gap_last"])


@pytest.mark.few(3)
@pytest.mark.parametrize("offset", [3, 5, 7, 10, 14, 17])
def test_what_a_recorded_gap_took_is_not_missed_again(offset: int) -> None:
    """After a gap that the exporter noted, nothing is compared with what lies before it."""
    records = everyday().table()
    rest = without(records, row_where(records, state_partition=0, offset=offset))

    assert failing(frame_of(rest)) != []
    assert failing(frame_of(rest, gaps=recorded_gap(0, offset, offset))) == []
    assert failing(frame_of(rest, gaps=recorded_gap(1, offset, offset))) != []


def quarantined(status: str, *, named: bool) -> dict[str, object]:
    """What is left of a record that could not be read."""
    fields = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    times = ("create_timestamp_ms", "write_timestamp_ms", "batches")
    key = () if named else ("record_type", "group_id", "topic_id", "partition")
    return {**dict.fromkeys((*fields, *times, *key)), "decode_status": status}


@pytest.mark.parametrize(
    ("status", "named"),
    [("malformed_value", True), ("unknown_version", True), ("malformed_key", False), ("null_key", False)],
)
def test_an_unreadable_record_says_nothing_of_those_after_it(status: str, named: bool) -> None:
    """A record that cannot be read is reported, and nothing after it is compared with its unknown content."""
    records = everyday().table()
    for offset in range(0, 19, 3):
        damaged = changed(
            records, row_where(records, state_partition=0, offset=offset), **quarantined(status, named=named)
        )

        frame = frame_of(damaged)

        assert (frame["decode_status"] != "decoded").sum() == 1
        for value, bound in (("snapshot_epoch", "successor_epoch"), ("snapshot_epoch", "base_epoch")):
            known = frame[bound].notna() & frame[value].notna()
            assert (frame.loc[known, value] == frame.loc[known, bound]).all()
        for value, bound in (("leader_epoch", "least_leader_epoch"), ("start_offset", "least_start_offset")):
            known = frame[bound].notna() & frame[value].notna()
            assert (frame.loc[known, value] >= frame.loc[known, bound]).all()


def test_an_unknown_key_type_is_passed_over() -> None:
    """A record of a type that no broker knows is none of any share partition: chains continue past it."""
    records = everyday().table()
    damaged = changed(
        records, row_where(records, state_partition=0, offset=1), **quarantined("unknown_type", named=False)
    )

    assert frame_of(damaged)["base_epoch"].notna().sum() == frame_of(records)["base_epoch"].notna().sum()
