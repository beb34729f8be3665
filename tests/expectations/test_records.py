"""What a broker writes in its normal life breaks no rule, however its log is cut into exports; records whose raw bytes
and decoded columns differ are found when all records are validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import (
    RUN,
    changed,
    cluster,
    fill,
    logs,
    named,
    ranges,
    reconciliations,
    record_frames,
    row_where,
    states,
    validate,
    without,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from state_topics.coordinator_log import (
    OTHER_TOPIC,
    STATE_PARTITIONS,
    TOPIC,
    Coordinator,
    batch,
    everyday,
    from_raw,
    share_partition,
)

from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, RAW_RECORDS
from acktrail.model.share_partition import SharePartition
from acktrail.tables.delta.store import Tables
from acktrail_expectations import validation_input
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.table_frames import share_partition_states_frame
from acktrail_expectations.gate import validate_run
from acktrail_expectations.rule_results import QualityResult, RuleState

pytestmark = pytest.mark.usefixtures("plain_engine")

RULE = "record_matches_raw_bytes"
Damage = Callable[[pa.Table], pa.Table]


def outcome(config: TablesConfig, *, every_record: bool = True) -> QualityResult:
    return named(validate_run(Tables(config), RUN, every_record=every_record), "state_records", RULE)


def flipped(name: str, offset: int = 9) -> Damage:
    """The last byte of a key or a value altered in a record of state partition 0."""

    def harm(records: pa.Table) -> pa.Table:
        index = row_where(records, state_partition=0, offset=offset)
        octets = records[name][index].as_py()
        return changed(records, index, **{name: octets[:-1] + bytes([octets[-1] ^ 1])})

    return harm


def with_columns(**values: object) -> Damage:
    """Other decoded values in the record at 0/9."""
    return lambda records: changed(records, row_where(records, state_partition=0, offset=9), **values)


DAMAGE: dict[str, Damage] = {
    "key bytes": flipped("key"),
    "value bytes": flipped("value"),
    "no value": with_columns(value=None),
    "a decoded number": with_columns(leader_epoch=77),
    "a decoded number lost": with_columns(start_offset=None),
    "a decoded name": with_columns(group_id="somebody"),
    "decoded batches": with_columns(batches=[]),
    "the decode status": with_columns(decode_status="malformed_value"),
}


def matching(records: pa.Table) -> list[bool]:
    """Of each record in the order of its address, whether bytes and columns agree."""
    found = record_frames(records, cluster(), compares_bytes=True).add(records, since={})
    return list(found["matches_raw_bytes"])


def test_bytes_and_columns_that_differ_are_found() -> None:
    """Whichever of the two was altered, of that record alone."""
    for name, damage in DAMAGE.items():
        assert [at for at, fine in enumerate(matching(damage(everyday().table()))) if not fine] == [9], name


def test_what_an_earlier_acktrail_could_not_read_contradicts_nothing() -> None:
    """Its row lacks the columns that are known today; what it does have is compared."""
    names = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "batches")
    newer = with_columns(decode_status="unknown_version", **dict.fromkeys(names))(everyday().table())
    assert matching(newer) == [True] * newer.num_rows
    assert [at for at, fine in enumerate(matching(with_columns(group_id="somebody")(newer))) if not fine] == [9]


def with_unreadable() -> pa.Table:
    """Everyday's records with some that cannot be decoded: half a value, no key, half a key, a version of tomorrow."""
    records = everyday().table()
    raw = records.select(["state_partition", "offset", "timestamp_ms", "key", "value"]).rename_columns(
        RAW_RECORDS.names
    )
    rows = raw.to_pylist()
    rows[3]["value"] = rows[3]["value"][:-1]
    rows[5]["key"] = None
    rows[7]["key"] = rows[7]["key"][:5]
    rows[9]["key"] = b"\x00\x63" + rows[9]["key"][2:]
    return from_raw(rows)


def test_undecodable_records_agree_with_their_bytes() -> None:
    """Every record counts as compared, also those whose status says that they cannot be read."""
    records = with_unreadable()
    assert len(set(records["decode_status"].to_pylist())) > 3
    assert matching(records) == [True] * records.num_rows


@pytest.mark.few(1)
@pytest.mark.parametrize(("pieces", "parts"), [(20, 9), (3, 2)])
def test_pieces_and_order_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int, parts: int
) -> None:
    """Files in another order than the log's, a record stored twice, small pieces: the altered records are named."""
    monkeypatch.setattr(validation_input, "MOST_RECORDS", pieces)
    monkeypatch.setattr("acktrail_expectations.frames.record_frames._COMPARED_AT_ONCE", parts)
    records = flipped("value")(everyday().table())
    middle = records.num_rows // 2
    config = fill(tmp_path, state_records=records.slice(middle), export_ranges=ranges(records))
    Tables(config).append("state_records", records.slice(0, middle))
    Tables(config).append("state_records", records.slice(middle, 1))

    result = outcome(config)

    assert (result.element_count, result.unexpected_count) == (records.num_rows + 1, 1)
    assert str(result.observed_value).startswith("0/9 of ")


def test_a_failure_of_an_earlier_validation_stays(tmp_path: Path) -> None:
    """A run that failed on all its records and grew since does not pass by what came."""
    life = everyday()
    config = fill(tmp_path, life, state_records=flipped("value")(life.table()))
    assert outcome(config).state is RuleState.FAILS
    Tables(config).append("reconciliations", reconciliations(life).slice(0, 1))
    Tables(config).append("share_partition_states", states(life).slice(0, 1))

    with pytest.raises(QualityGateFailed, match=RULE):
        validate(config, RUN)


def test_records_of_another_dialect_are_not_judged(tmp_path: Path) -> None:
    """Their bytes are laid out in another way: nothing is known, with the reason."""
    Tables(TablesConfig(uri=str(tmp_path))).create("state_records", properties={"dialect": "4.0"})

    result = outcome(fill(tmp_path, state_records=flipped("value")(everyday().table())))

    assert (result.state, result.element_count) == (RuleState.NOT_EVALUATED, 0)
    assert result.reason is not None
    assert "another dialect" in result.reason


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
