"""What the exporter's commits cover, without Spark."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import World, key_of, snapshot

from acktrail.columnar.schemas import TABLES
from acktrail_jobs.coverage import Coverage, read_coverage
from acktrail_jobs.observation import read_observation

Commit = tuple[int, int, bool]
"""Offsets lost, offsets exported, whether the exporter noted the loss."""

commits = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=8)


def coverage_of(world: World, run_id: str = "r1") -> dict[int, Coverage]:
    return read_coverage(world.tables, read_observation(world.tables, run_id))


@given(commits, commits)
@settings(max_examples=40)
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
    """Nor are damaged ones among them held against it."""
    key = key_of("a")
    place, _ = world.write(snapshot(key))
    world.observe("r1")
    world.damage(key)
    world.observe("r2")
    assert (coverage_of(world, "r1")[place].end_offset, coverage_of(world, "r1")[place].quarantined) == (1, 0)
    assert (coverage_of(world, "r2")[place].quarantined, coverage_of(world, "r2")[place].quarantined_at) == (1, 1)
