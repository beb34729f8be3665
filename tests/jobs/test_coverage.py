"""What the exporter's commits cover, without Spark."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import World, key_of, snapshot
from samples.memory_source import MemoryLog

from acktrail.config import TablesConfig
from acktrail.connect.source_batches import (
    LOG_REPLACED,
    PRUNED_BEFORE_FIRST_EXPORT,
    LogSpan,
    SourceBatch,
    state_source_partition,
)
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.reconcile.observed_run import Coverage, Gap, read_coverage, read_observation
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink

Commit = tuple[int, int, bool]
"""Offsets lost, offsets exported, whether the exporter noted the loss."""

commits = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=8)


def coverage_of(world: World, run_id: str = "r1") -> dict[int, Coverage]:
    return read_coverage(world.tables, read_observation(world.tables, run_id))


@given(commits, commits)
@settings(max_examples=15)
def test_gaps_are_what_no_commit_holds(own: list[Commit], later: list[Commit]) -> None:
    """Noted or not, every offset lost between two commits is in a gap, and one lost before the first when it was noted;
    commits made after the observation do not count."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), state_partitions=1)
        world.sample("r1", "before")
        world.sample("r1", "after")
        lost, end = _write(world, own, "r1", 0)
        _write(world, later, "r2", end)
        (found,) = coverage_of(world).values()
    assert {o for gap in found.gaps for o in range(gap.first_offset, gap.last_offset + 1)} == lost
    assert found.end_offset == 0  # the state topic ended there when the observation did


def _write(world: World, log: list[Commit], run_id: str, reached: int) -> tuple[set[int], int]:
    """Commit ranges from offset `reached` on; the lost offsets that can be known, and the offset after the last."""
    rows, lost = [], set()
    for missed, exported, is_noted in log:
        first = reached + missed
        has_gap = is_noted and missed > 0
        rows.append(
            {
                "run_id": run_id,
                "state_partition": 0,
                "first_offset": first,
                "last_offset": first + exported - 1,
                "gap_first": reached if has_gap else None,
                "gap_last": first - 1 if has_gap else None,
                "exported_at": world.now + (dt.timedelta() if run_id == "r1" else dt.timedelta(hours=1)),
            }
        )
        lost |= set(range(reached, first)) if has_gap or len(rows) > 1 else set()
        reached = first + exported
    world.tables.append("export_ranges", pa.Table.from_pylist(rows, schema=TABLES["export_ranges"]))
    return lost, reached


def test_an_export_is_complete_from_the_log_end_seen_before(world: World) -> None:
    """One record less, and it is not; what came after the first sample need not be there; an empty log is complete."""
    key = key_of("a")
    place, _ = world.write(snapshot(key), snapshot(key))
    world.export("r0", at_most=1)
    world.sample("r1", "before")
    world.sample("r1", "after")
    found = coverage_of(world)
    assert "ends at offset 1, but its log ended at 2" in (found[place].incomplete or "")
    assert {coverage.incomplete for partition, coverage in found.items() if partition != place} == {None}
    world.sample("r2", "before")
    world.write(snapshot(key))
    world.export("r2", at_most=1)
    world.sample("r2", "after")
    assert coverage_of(world, "r2")[place].incomplete is None
    assert coverage_of(world)[place].incomplete is not None


def test_records_beyond_the_observation_are_not_its_own(world: World) -> None:
    """Nor do damaged ones among them count."""
    key = key_of("a")
    place, _ = world.write(snapshot(key))
    world.observe("r1")
    world.damage(key)
    world.observe("r2")
    assert (coverage_of(world, "r1")[place].end_offset, coverage_of(world, "r1")[place].quarantined) == (1, 0)
    assert (coverage_of(world, "r2")[place].quarantined, coverage_of(world, "r2")[place].quarantined_offset) == (1, 1)


def test_a_replaced_log_is_a_gap_and_its_ends_are_those_of_the_tables(tmp_path: Path) -> None:
    """The log ended at 100 when it was lost; the new one has 30 records, from offset 101 of the tables on. The brokers
    say that it ends at 30: the coverage ends at 131. What was pruned before the first export is no gap, the break is
    one: states are unknown from there to the next snapshot."""
    tables, at = Tables(TablesConfig(uri=str(tmp_path))), dt.datetime.now(dt.UTC)
    sink = DeltaSink(tables, cluster_id="c", run_id="r1", clock=lambda: at)
    log = MemoryLog(pairs=[(b"key", b"value")], end_offset=1_000)
    source_partition = state_source_partition("c", log.topic_id, 0)

    def put(first: int, end: int, reason: str | None = None, shift: int = 0) -> None:
        rows = TABLES["state_records"].empty_table() if reason else decode_records(log.raw(first, end))
        span = LogSpan(
            topic_id=log.topic_id,
            partition=0,
            first_offset=None if reason else first,
            last_offset=None if reason else end - 1,
            records=rows.num_rows,
            quarantined=rows.num_rows,
            log_start_offset=shift,
            log_end_offset=end,
            gap_first=first if reason else None,
            gap_last=end - 1 if reason else None,
            gap_reason=reason,
            offset_shift=shift,
            leader_epoch=1,
        )
        batch = {"state_records": rows}
        sink.put(SourceBatch(source_partition=source_partition, rows=batch, position=end, span=span))

    put(0, 5, PRUNED_BEFORE_FIRST_EXPORT)
    put(5, 100)
    put(100, 101, LOG_REPLACED, 101)
    put(101, 131, None, 101)
    sink.flush()
    said = {"run_id": "r1", "topic": STATE_TOPIC, "partition": 0, "log_start_offset": 0, "log_end_offset": 30}
    observed = [{**said, "phase": phase, "observed_at": at} for phase in ("before", "after")]
    tables.append("offset_observations", pa.Table.from_pylist(observed, schema=TABLES["offset_observations"]))
    (found,) = read_coverage(tables, read_observation(tables, "r1")).values()
    assert found.gaps == (Gap(first_offset=100, last_offset=100),)
    assert (found.end_offset, found.incomplete) == (131, None)
