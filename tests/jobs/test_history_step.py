"""Records out of a table to changes, without Spark: rows in, rows out, equal to the history of the model."""

from __future__ import annotations

import random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from definitions.status_history import History, change_table
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import key_of, snapshot
from samples.random_records import batches, disjoint_batches, records, small_records

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, HELD_COLUMNS, changes_of, known_states_of
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.state_record import encode, encode_key
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.model.status_changes import LAST_OFFSET, KnownState, StatusChange
from acktrail_jobs.pipeline.history_run import apply_records

KEYS = [key_of(group, partition=partition) for group in ("a", "b:c") for partition in (0, 1)]
PLACE = 3
SKIPPED = "skipped"
ORDER = ("record_offset", "group_id", "topic_id", "partition", "first_offset")
Entry = StateRecord | SharePartition | str | None
"""A share partition stands for a record of it that cannot be decoded, None for one whose key cannot be read, a string
for one of a type that a broker skips."""
Log = list[Entry]

few_batches = st.one_of(batches(high=9, most=3), disjoint_batches(), batches(low=LAST_OFFSET - 6, high=LAST_OFFSET - 5))
starts = st.one_of(st.none(), st.integers(0, 9), st.sampled_from([-5, 2**40, LAST_OFFSET - 3, LAST_OFFSET]))
entries: st.SearchStrategy[Entry] = st.one_of(
    small_records(st.sampled_from(KEYS), starts, few_batches),
    records(st.sampled_from(KEYS)),
    st.sampled_from([*KEYS, None, SKIPPED, *(Tombstone(key=key) for key in KEYS)]),
)


@st.composite
def some_logs(draw: st.DrawFn) -> Log:
    """Records of all kinds, some of them repeated."""
    own = draw(st.lists(entries, min_size=1, max_size=10))
    return draw(st.permutations(own + draw(st.lists(st.sampled_from(own), max_size=6))))


logs = st.one_of(st.just([]), some_logs())


def rows_of(log: Log) -> pa.Table:
    """The log as the exporter writes it, decoded."""
    pairs = [_bytes(each) for each in log]
    raw = [
        {"partition": PLACE, "offset": offset, "timestamp": 1_000 + offset, "key": key, "value": value}
        for offset, (key, value) in enumerate(pairs)
    ]
    return decode_records(pa.Table.from_pylist(raw, schema=RAW_RECORDS))


def _bytes(record: Entry) -> tuple[bytes, bytes | None]:
    if record is None:
        return b"\x00", b"\x00"
    if isinstance(record, str):
        return b"\x00\x07" + encode_key(1, KEYS[0])[2:], b"\x00"
    return (encode_key(1, record), b"\x00") if isinstance(record, SharePartition) else encode(record)


def expected(log: Log, missing: range = range(0)) -> tuple[list[StatusChange], dict[SharePartition, KnownState]]:
    """By the model alone."""
    history, changes = History(PLACE, {}), []
    for offset, record in enumerate(log):
        if offset in missing:
            changes += history.gap(offset) if offset == missing[0] else ()
        elif record is None:
            changes += history.unattributed(offset=offset, timestamp_ms=1_000 + offset)
        elif isinstance(record, str):
            continue
        elif isinstance(record, SharePartition):
            changes += history.unreadable(record, offset=offset, timestamp_ms=1_000 + offset)
        else:
            changes += history.record(record, offset=offset, timestamp_ms=1_000 + offset)
    return changes, dict(history.known_states)


def no_spans(state_partition: int, begin: int) -> list[tuple[int, int]]:
    assert state_partition == PLACE
    return []


class AppliedRecords(NamedTuple):
    changes: pa.Table
    held: pa.Table
    ends: dict[int, int]


def applied(rows: pa.Table, begin: int, end: int, held: pa.Table, report_from: int = 0) -> AppliedRecords:
    """The records from `begin` to before `end`."""
    own = rows.filter((pc.field("offset") >= begin) & (pc.field("offset") < end))
    return AppliedRecords(*apply_records(own, held, {PLACE: begin}, {PLACE: report_from}, no_spans))


def end_of(part: AppliedRecords, begin: int) -> int:
    """Where the records end that begin there."""
    return part.ends.get(PLACE, begin)


@given(logs, logs, st.integers(0, 16), st.integers(1, 3))
def test_state_partitions_are_applied_together(one: Log, other: Log, cut: int, first: int) -> None:
    """What some make of a log does not depend on those beside them, however their names and losses are alike."""
    found, held, ends = [], HELD_COLUMNS.empty_table(), dict[int, int]()
    both = [_on(PLACE, one, first), _on(PLACE + 1, other, first)]
    for low, high in ((0, cut), (cut, 99)):
        offsets = pc.field("offset")
        own = pa.concat_tables([rows.filter((offsets >= low) & (offsets < high)) for rows in both])
        part = AppliedRecords(*apply_records(own, held, ends, {}, lambda *_: []))
        held, ends = part.held, {**ends, **part.ends}
        found.append(part.changes.cast(CHANGE_COLUMNS))
    for rows in both:
        alone = AppliedRecords(*apply_records(rows, HELD_COLUMNS.empty_table(), {}, {}, lambda *_: []))
        for ours, theirs in ((pa.concat_tables(found), alone.changes.cast(CHANGE_COLUMNS)), (held, alone.held)):
            number = pc.field("state_partition") == rows["state_partition"][0] if rows.num_rows else pc.scalar(False)
            order = [(name, "ascending") for name in ORDER if name in ours.schema.names]
            assert ours.filter(number).sort_by(order).to_pylist() == theirs.sort_by(order).to_pylist()


def _on(state_partition: int, log: Log, missing: int) -> pa.Table:
    """The log without one of its records, on another state partition."""
    rows = rows_of(log).filter(pc.field("offset") != missing)
    number = pa.repeat(pa.scalar(state_partition, pa.int32()), rows.num_rows)
    return rows.set_column(rows.column_names.index("state_partition"), "state_partition", number)


@given(logs, st.lists(st.integers(0, 16), max_size=3))
def test_any_ranges_give_the_models_changes(log: Log, cuts: list[int]) -> None:
    """However the log is cut into ranges, each continuing from the rows that the one before left."""
    changes, states = expected(log)
    rows, held, found, begin = rows_of(log), HELD_COLUMNS.empty_table(), [], 0
    parts: list[pa.Table] = []
    for end in (*sorted({min(cut, len(log)) for cut in cuts}), len(log)):
        part = applied(rows, begin, end, held)
        found += changes_of(part.changes)
        parts.append(part.changes.cast(CHANGE_COLUMNS))
        held, begin = part.held, end_of(part, begin)
    assert found == changes
    assert dict(known_states_of(held)) == states
    assert change_table(found).equals(pa.concat_tables([change_table(()), *parts]).combine_chunks())


@given(logs, st.integers(0, 16), st.integers(0, 16))
def test_records_gone_over_again_make_no_change(log: Log, held_to: int, told: int) -> None:
    """Saved states may be older than the history: then only the changes after its end are given, once each."""
    changes, states = expected(log)
    rows = rows_of(log)
    early = applied(rows, 0, min(held_to, told, len(log)), HELD_COLUMNS.empty_table())
    late = applied(rows, end_of(early, 0), len(log), early.held, report_from=told)
    assert list(changes_of(late.changes)) == [change for change in changes if change.at.offset >= told]
    assert dict(known_states_of(late.held)) == states


@given(logs, st.integers(1, 16), st.integers(1, 4), st.booleans())
def test_missing_offsets_are_a_gap(log: Log, first: int, length: int, cut_there: bool) -> None:
    """Records that are not in the table make everything unknown, also where a range ended before them."""
    missing = range(first, first + length)
    if first + length >= len(log):
        return
    changes, states = expected(log, missing)
    rows = rows_of(log).filter((pc.field("offset") < first) | (pc.field("offset") >= first + length))
    early = applied(rows, 0, first if cut_there else 0, HELD_COLUMNS.empty_table())
    late = applied(rows, end_of(early, 0), len(log), early.held)
    assert [*changes_of(early.changes), *changes_of(late.changes)] == changes
    assert dict(known_states_of(late.held)) == states


def test_offsets_that_kafka_does_not_have_are_no_gap() -> None:
    """Where one commit of the exporter spans a hole, there was no record; a hole between two commits is a gap."""
    key = KEYS[0]
    base = snapshot(key, leader_epoch=0, snapshot_epoch=0)
    rows = rows_of([base] * 10).filter(pc.is_in(pc.field("offset"), pa.array([0, 1, 5, 6, 9])))
    asked: list[int] = []

    def spans(state_partition: int, begin: int) -> list[tuple[int, int]]:
        asked.append(begin)
        return [(0, 6), (9, 9)]

    found = list(changes_of(apply_records(rows, HELD_COLUMNS.empty_table(), {}, {}, spans)[0]))
    assert [(c.at.offset, c.at.cause.value) for c in found if c.at.timestamp_ms is None] == [(7, "gap")]
    assert asked == [0]


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_updates_of_one_range_equal_the_model(seed: int) -> None:
    """Narrow and wide batches over each other, start offsets that move both ways: more cuts than are made in one go."""
    dice = random.Random(seed)
    log: Log = [_wide_update(dice, begin) for begin in range(1_000)]
    changes, states = expected(log)
    found = applied(rows_of(log), 0, len(log), HELD_COLUMNS.empty_table())
    assert list(changes_of(found.changes)) == changes
    assert dict(known_states_of(found.held)) == states


def _wide_update(dice: random.Random, begin: int) -> ShareUpdate:
    first = dice.randrange(200)
    last = first + dice.choice((0, 3, 250))
    own = StateBatch(
        first_offset=first, last_offset=last, delivery_state=dice.choice((0, 2)), delivery_count=1 + begin // 100
    )
    return ShareUpdate(
        key=KEYS[0],
        snapshot_epoch=0,
        leader_epoch=None,
        start_offset=dice.choice([None] * 20 + [dice.randrange(20)]),
        delivery_complete_count=None,
        batches=(own,),
    )
