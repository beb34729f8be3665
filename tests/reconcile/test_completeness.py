"""What the history says that it lacks: everything that was not exported or cannot be read, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jobs.world import WRITTEN_MS, World, batch, key_of, snapshot, update
from samples.history_tables import build

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.status_changes import HistoryCompleteness, MissingRecords, UnknownReason
from acktrail.reconcile.past.history_completeness import _EVENT, _events
from acktrail.reconcile.past.history_reader import HistoryReader

KEY = key_of("g")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One state partition; share partition `KEY` initialized by record 0. Records are a millisecond apart."""
    found = World(tmp_path / "tables", state_partitions=1)
    found.write(snapshot(KEY, 0, snapshot_epoch=0))
    found.write(update(KEY, 0, 0, (batch(5, 5, 4, 5),)))
    return found


def lacking(world: World, run_id: str = "last", *, lost: int | None = None) -> HistoryCompleteness:
    """Completeness of group `g` after an export of the new records after those before `lost` were pruned."""
    world.export(run_id, lost=None if lost is None else {0: lost})
    build(world.tables)
    return HistoryReader(world.tables).completeness("g")


def told(found: HistoryCompleteness) -> list[tuple[UnknownReason, int | None, int | None, int | None]]:
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
    assert told(found) == [(UnknownReason.EARLIER, None, None, 2)]
    assert found.known_from is not None
    assert found.known_from.timestamp_ms == WRITTEN_MS + 2


def test_two_gaps_before_a_snapshot(world: World) -> None:
    """Both are listed, and both end there."""
    world.export("r1")
    world.write(*[update(KEY, 0, 0, (batch(n, n, 2, 1),)) for n in range(10, 14)])
    lacking(world, "r2", lost=4)
    world.write(*[update(KEY, 0, 0, (batch(n, n, 2, 1),)) for n in range(14, 17)], snapshot(KEY, 8))
    found = lacking(world, lost=7)
    assert told(found) == [(UnknownReason.GAP, 2, 3, 9), (UnknownReason.GAP, 6, 6, 9)]
    assert found.missing[0].after_ms == WRITTEN_MS + 1


def test_a_gap_with_nothing_behind_it(world: World) -> None:
    """It is lacking as soon as it is noted, though no record has come after it."""
    world.export("r1")
    world.write(update(KEY, 0, 0, ()))
    found = lacking(world, lost=3)
    assert told(found) == [(UnknownReason.GAP, 2, 2, None)]
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
    assert told(found) == [(UnknownReason.UNREADABLE, 2, 2, 5), (UnknownReason.UNREADABLE, 4, 4, 5)]
    assert HistoryReader(world.tables).completeness("later").is_complete


def test_a_share_partition_that_nobody_could_read(world: World) -> None:
    """The history has no row of it; all of it is lacking."""
    world.damage(key_of("g", 1, 1))
    found = lacking(world)
    assert told(found.of(key_of("g", 1, 1))) == [(UnknownReason.EARLIER, None, None, None)]
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
    found = lacking(world, lost=4)
    assert found.within(until_ms=WRITTEN_MS + 1).is_complete
    assert not found.within(until_ms=WRITTEN_MS + 2).is_complete
    assert not found.within(since_ms=WRITTEN_MS + 4).is_complete
    assert found.within(since_ms=WRITTEN_MS + 5).is_complete
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
