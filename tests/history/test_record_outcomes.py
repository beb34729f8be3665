"""The history of records below a start offset: complete, or a number and the reason why it may be more. What a
group last did with each record, against a fold offset by offset. What the history says that it lacks: everything that
was not exported or cannot be read, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from definitions.status_history import change_table, changes_of
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import WRITTEN_MS, World, batch, key_of, snapshot, topic_id, update
from samples.coordinator_random_logs import KEYS, coordinator_logs
from samples.history_tables import build

from acktrail.errors import ForeignCluster
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_record import encode
from acktrail.history.history_completeness import _EVENT, _events
from acktrail.history.history_reader import HistoryReader
from acktrail.history.record_outcomes import (
    AffectedRange,
    OutcomeCounts,
    RecordOutcomes,
    by_share_partition,
    outcome_counts,
    outcome_filter,
)
from acktrail.model.offset_changes import (
    HistoryCompleteness,
    MissingRecords,
    OffsetStatusKind,
    StatusChange,
    UnknownReason,
)
from acktrail.model.offset_ranges import joined
from acktrail.model.records import StateRecord
from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for

KEY = key_of("g")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One state partition with three records, a millisecond apart; of share partition `KEY` records 0 to 5 are archived
    and 6 to 9 acknowledged."""
    found = World(tmp_path / "tables", state_partitions=1)
    found.write(snapshot(KEY, 0, snapshot_epoch=0))
    found.write(update(KEY, 0, 10, (batch(0, 5, 4, 5), batch(6, 9, 2, 1))), update(KEY, 10, 0, ()))
    return found


def told(world: World, newest: int | None = 2, *, first: int = 0, last: int = 9, **named: str) -> OutcomeCounts:
    """The history of offsets in the tables of `world`, where Kafka's newest state record of them is `newest`."""
    own = AffectedRange(key=KEY, first_offset=first, last_offset=last, state_partition=0, record_offset=newest)
    cluster = named.get("cluster_id", "c1")
    return RecordOutcomes(world.tables, cluster, named.get("state_topic_id"), [own]).outcomes()[KEY]


def numbers(found: OutcomeCounts) -> tuple[int, int, int]:
    return found.acknowledged, found.archived, found.unknown


def use(world: World, run_id: str, *, lost: int | None = None) -> None:
    world.export(run_id, lost=None if lost is None else {0: lost})
    build(world.tables)


def test_without_a_history_nothing_is_known(world: World) -> None:
    """Not exported, exported and not used, of another group: unknown, with a reason each."""
    assert numbers(told(world)) == (0, 0, 10)
    world.export("r1")
    assert "acktrail run history" in (told(world).reason or "")
    build(world.tables)
    own = AffectedRange(key=key_of("other"), first_offset=0, last_offset=4, state_partition=0, record_offset=2)
    found = RecordOutcomes(world.tables, "c1", None, [own]).outcomes()[own.key]
    assert (numbers(found), found.reason is None) == ((0, 0, 5), False)


def test_a_gap_makes_what_was_known_a_least_number(world: World) -> None:
    """Before the gap 6 were archived; in it nothing is known; after it 2 more were."""
    use(world, "r1")
    world.write(*[update(KEY, 10, 0, ())] * 3)
    world.write(snapshot(KEY, 20), update(KEY, 20, 2, (batch(20, 21, 4, 5),)), update(KEY, 22, 0, ()))
    use(world, "r2", lost=6)
    found = told(world, 8, last=21)
    assert numbers(found) == (4, 8, 20)
    assert found.reason is not None


def test_an_unreadable_record_makes_it_a_least_number(world: World) -> None:
    """With and without the share partition in its key."""
    use(world, "r1")
    world.write_bytes(0, b"\x00", b"\x00")
    use(world, "r2")
    assert numbers(told(world)) == (4, 6, 10)
    world.damage(KEY)
    use(world, "r3")
    assert numbers(told(world, 4)) == (4, 6, 10)


def test_a_history_that_is_behind_says_so(world: World) -> None:
    """Kafka has a newer record of it: nothing is certain, the numbers are those until then."""
    use(world, "r1")
    found = told(world, newest=7)
    assert numbers(found) == (4, 6, 10)
    assert "ends before record 3" in (found.reason or "")
    assert told(world, newest=None).reason is not None


def test_tables_of_another_cluster_or_state_topic_tell_nothing(world: World) -> None:
    """Offsets of another log would be taken for this one's."""
    create_records_for(world.tables, "c1", topic_id(9), OWN_DIALECT)
    use(world, "r1")
    assert numbers(told(world, state_topic_id=topic_id(9))) == (4, 6, 0)
    assert numbers(told(world, state_topic_id="AAAAAAAAAAAAAAAAAAAAAA")) == (0, 0, 10)
    with pytest.raises(ForeignCluster):
        told(world, cluster_id="c2")


@pytest.mark.parametrize("gap", [False, True])
def test_newer_records_go_on_from_what_is_held(world: World, gap: bool) -> None:
    """They are added to the history; where some were pruned unread, everything before is a least number."""
    use(world, "r1")
    own = AffectedRange(key=KEY, first_offset=0, last_offset=12, state_partition=0, record_offset=5)
    found = RecordOutcomes(world.tables, "c1", None, [own])
    assert found.behind == (own,)
    positions, held = found.saved_states()
    assert positions == {0: 3}
    newer = (update(KEY, 10, 3, (batch(10, 12, 4, 5),)), update(KEY, 13, 0, ()))
    raw = [
        RawRecord(state_partition=0, offset=4 + number, timestamp_ms=WRITTEN_MS, key=key, value=value)
        for number, (key, value) in enumerate(map(encode, newer))
    ]
    found.add(held, raw, {0: (3, 4)} if gap else {}, {0: 6})
    assert found.behind == ()
    assert numbers(found.outcomes()[KEY]) == (4, 9, 10 if gap else 0)


_SETTLED = (2, 4)
OFFSETS = 40


def one_by_one(changes: Sequence[StatusChange], first: int, last: int) -> tuple[int, int, int]:
    """Acknowledged, archived and unknown, counted offset by offset in the order of the records."""
    acknowledged = archived = unknown = 0
    for offset in range(first, last + 1):
        own = [change for change in changes if change.covers(offset)]
        state, is_known = None, bool(own)
        for change in own:
            if change.after.kind is OffsetStatusKind.UNKNOWN:
                is_known = False
            elif change.before.kind is OffsetStatusKind.UNKNOWN:
                is_known = change.after.kind is not OffsetStatusKind.BELOW_START
            if change.after.delivery_state in _SETTLED:
                state, is_known = change.after.delivery_state, True
        acknowledged += state == 2
        archived += state == 4
        unknown += not is_known
    return acknowledged, archived, unknown


@given(coordinator_logs(), st.integers(0, 3), st.tuples(st.integers(0, 12), st.integers(0, 12)), st.data())
def test_counts_are_those_counted_one_by_one(
    log: list[StateRecord], begin: int, gap: tuple[int, int], data: st.DataObject
) -> None:
    """For any life of share partitions, cut anywhere at its beginning and with a gap: the same three numbers."""
    first = data.draw(st.integers(0, OFFSETS))
    last = data.draw(st.integers(first, OFFSETS))
    changes = changes_of(log, range(*gap), begin)
    rows = dict(by_share_partition(change_table(changes).filter(outcome_filter())))
    for key in KEYS:
        own = [change for change in changes if change.key == key]
        table = rows.get((key.group_id, key.topic_id, key.partition))
        if table is None:
            assert not own
            continue
        found = outcome_counts(table, first, last)
        assert (found.acknowledged, found.archived, found.unknown) == one_by_one(own, first, last)


@given(coordinator_logs(), st.data())
def test_what_was_archived_is_counted_wherever_the_start_offset_went(
    log: list[StateRecord], data: st.DataObject
) -> None:
    """From a share partition's beginning on nothing is unknown, and the archived are those that a record archived and
    none acknowledged later: resets, their undoing and deletions do not take them away."""
    key = data.draw(st.sampled_from(KEYS))
    last_state: dict[int, int] = {}
    for record in log:
        if record.key == key:
            for batch in getattr(record, "batches", ()):
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    if batch.delivery_state in _SETTLED:
                        last_state[offset] = batch.delivery_state
    rows = dict(by_share_partition(change_table(changes_of(log)).filter(outcome_filter())))
    table = rows.get((key.group_id, key.topic_id, key.partition))
    if table is None:
        assert not last_state
        return
    found = outcome_counts(table, 0, OFFSETS)
    states = list(last_state.values())
    assert found == OutcomeCounts(
        acknowledged=states.count(2), archived=states.count(4), unknown=0, since_ms=found.since_ms
    )
    assert found.since_ms is not None
    hidden = sorted(data.draw(st.sets(st.integers(0, OFFSETS))))
    rest = outcome_counts(table, 0, OFFSETS, hidden=joined((offset, offset) for offset in hidden))
    seen = [state for offset, state in last_state.items() if offset not in hidden]
    assert (rest.acknowledged, rest.archived, rest.unknown) == (seen.count(2), seen.count(4), 0)


@given(coordinator_logs(), st.integers(0, 14))
def test_an_unattributed_record_leaves_a_doubt(log: list[StateRecord], doubt: int) -> None:
    """Of an unreadable record that may be about the share partition: only what was settled after it is known."""
    changes = changes_of(log)
    for key in KEYS:
        own = [change for change in changes if change.key == key]
        for _, table in by_share_partition(change_table(own).filter(outcome_filter())):
            later = sum(
                any(c.covers(o) and c.at.offset >= doubt and c.after.delivery_state in _SETTLED for c in own)
                for o in range(OFFSETS + 1)
            )
            assert outcome_counts(table, 0, OFFSETS, doubts=[doubt]).unknown == OFFSETS + 1 - later
            assert outcome_counts(table, 0, OFFSETS, doubts=[]).unknown == 0


def lacking(world: World, run_id: str = "last", *, lost: int | None = None) -> HistoryCompleteness:
    """Completeness of group `g` after an export of the new records after those before `lost` were pruned."""
    use(world, run_id, lost=lost)
    return HistoryReader(world.tables).completeness("g")


def missing(found: HistoryCompleteness) -> list[tuple[UnknownReason, int | None, int | None, int | None]]:
    """Reason, first and last record that is missing, and the record with the whole state."""
    return [
        (each.reason, each.first_record, each.last_record, None if each.until is None else each.until.offset)
        for each in found.missing
    ]


def test_an_export_that_began_late(world: World) -> None:
    """What was before the first snapshot is lacking; an update alone does not end that."""
    world.exported[0] = 1
    world.write(snapshot(KEY, 0, (batch(5, 5, 4, 5),)), update(KEY, 9, 0, ()))
    found = lacking(world)
    assert missing(found) == [(UnknownReason.EARLIER, None, None, 3)]
    assert found.known_from is not None
    assert found.known_from.timestamp_ms == WRITTEN_MS + 3


def test_two_gaps_before_a_snapshot(world: World) -> None:
    """Both are listed, and both end there."""
    world.export("r1")
    world.write(*[update(KEY, 0, 0, (batch(n, n, 2, 1),)) for n in range(10, 14)])
    lacking(world, "r2", lost=5)
    world.write(*[update(KEY, 0, 0, (batch(n, n, 2, 1),)) for n in range(14, 17)], snapshot(KEY, 8))
    found = lacking(world, lost=8)
    assert missing(found) == [(UnknownReason.GAP, 3, 4, 10), (UnknownReason.GAP, 7, 7, 10)]
    assert found.missing[0].after_ms == WRITTEN_MS + 2


def test_a_gap_with_nothing_behind_it(world: World) -> None:
    """It is lacking as soon as it is noted, though no record has come after it."""
    world.export("r1")
    world.write(update(KEY, 0, 0, ()))
    found = lacking(world, lost=4)
    assert missing(found) == [(UnknownReason.GAP, 3, 3, None)]
    assert found.of(KEY).missing == found.missing
    assert found.of(key_of("other")).is_complete


def test_unreadable_records(world: World) -> None:
    """One that names its share partition, and one that names none: until the next snapshot. A share partition that
    begins after it lacks nothing."""
    world.damage(KEY)
    world.write(update(KEY, 0, 0, (batch(7, 7, 2, 1),)))
    world.write_bytes(0, b"\x00", b"\x00")
    world.write(snapshot(KEY, 8), snapshot(key_of("later"), 0, snapshot_epoch=0))
    found = lacking(world)
    assert missing(found) == [(UnknownReason.UNREADABLE, 3, 3, 6), (UnknownReason.UNREADABLE, 5, 5, 6)]
    assert HistoryReader(world.tables).completeness("later").is_complete


def test_a_share_partition_that_nobody_could_read(world: World) -> None:
    """The history has no row of it; all of it is lacking."""
    world.damage(key_of("g", 1, 1))
    found = lacking(world)
    assert missing(found.of(key_of("g", 1, 1))) == [(UnknownReason.EARLIER, None, None, None)]
    assert found.of(KEY).is_complete


def test_exports_that_the_history_has_not_used(world: World) -> None:
    """Not complete, though nothing is missing in it."""
    lacking(world)
    world.write(update(KEY, 0, 0, ()))
    world.export("r2")
    found = HistoryReader(world.tables).completeness("g")
    assert (found.missing, found.is_complete) == ((), False)


def test_a_time_that_a_gap_does_not_touch(world: World) -> None:
    """Before the last record that was exported before it, and after the record with the whole state: complete."""
    world.export("r1")
    world.write(update(KEY, 0, 0, ()), update(KEY, 0, 0, ()), snapshot(KEY, 8), update(KEY, 8, 0, (batch(9, 9, 2, 1),)))
    found = lacking(world, lost=5)
    assert found.within(until_ms=WRITTEN_MS + 2).is_complete
    assert not found.within(until_ms=WRITTEN_MS + 3).is_complete
    assert not found.within(since_ms=WRITTEN_MS + 5).is_complete
    assert found.within(since_ms=WRITTEN_MS + 6).is_complete
    assert MissingRecords(key=KEY, state_partition=0, reason=UnknownReason.GAP).touches(since_ms=WRITTEN_MS)


class ManyRows:
    """Stands for the tables, and for the snapshot of one: of a gap, `times` batches with each of the rows twice."""

    def __init__(self, times: int, rows: int) -> None:
        said = {"group_id": "g", "topic_id": "t", "cause": "gap", "standing": "unknown", "before_standing": "absent"}
        wanted = (*_EVENT, "standing", "before_standing")
        named = [field for field in TABLES["delivery_history"] if field.name in wanted]
        self.columns = {field.name: pa.repeat(pa.scalar(said.get(field.name, 1), field.type), rows) for field in named}
        self.times, self.held = times, list[int]()

    def snapshot(self, _: str) -> ManyRows:
        return self

    def batches(self, **_: Any) -> Iterator[pa.RecordBatch]:
        for _ in range(self.times):
            self.held.append(pa.total_allocated_bytes())
            doubled = {name: pa.concat_arrays([own, own]) for name, own in self.columns.items()}
            yield pa.RecordBatch.from_pydict(doubled)


def test_intervals_of_offsets_take_no_memory() -> None:
    """A gap has a row for every interval of every share partition: they are summed as they are read."""
    tables: Any = ManyRows(30, 10_000)
    (event,) = _events(tables, None)
    assert (event["cause"], event["is_loss"]) == ("gap", True)
    assert tables.held[-1] - tables.held[1] < 2_000_000
