"""Every table read to its last row: every contradiction is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from jobs.world import World, batch, key_of, snapshot, update

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_report import contradictions, find_damage


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "tables", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(4)))
    world.observe("r1")
    world.write(*(update(key_of(f"g{index}"), 0, 3, (batch(0, 2),)) for index in range(4)))
    world.observe("r2")
    return world


def _faults(world: World) -> str:
    """What a repair would show, and records whose bytes say something else than their columns."""
    report, records = find_damage(world.tables), world.tables.snapshot("state_records")
    damages = [f"{each.table} {each.cause}" for each in report.damages]
    if not damages and records is not None:
        altered = contradictions(world.tables, [file.path for file in records.files()])
        damages += [f"{row['state_partition']}/{row['offset']} altered" for rows in altered for row in rows.to_pylist()]
    faults = [*(f"missing: {each}" for each in report.lost or ()), *report.other_faults()]
    assert report.is_sound is (not report.damages and not faults)
    return "; ".join([*damages, *faults])


def _again(tables: Tables) -> None:
    """The newest record once more."""
    tables.append("state_records", tables.read("state_records").slice(7))


def _beside(tables: Tables) -> None:
    """A record in no range."""
    (row,) = tables.read("state_records").slice(7).to_pylist()
    tables.append("state_records", pa.Table.from_pylist([{**row, "offset": 20}], schema=TABLES["state_records"]))


def _altered(tables: Tables) -> None:
    """A record whose value says something else."""
    rows = tables.read("state_records").to_pylist()
    row = next(row for row in rows if row["offset"] == 5)
    row["value"] = row["value"][:-1] + bytes([row["value"][-1] ^ 1])
    with tables.rewritable("state_records"):
        tables.replace("state_records", pa.Table.from_pylist(rows, schema=TABLES["state_records"]))


def _without_a_file(tables: Tables) -> None:
    min(Path(tables.root, "state_records").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_again, "1 records of state partition 0 are stored twice"),
        (_beside, "1 records are in no range, the first ones: state partition 0, offsets 20 to 20"),
        (_altered, "0/5 altered"),
        (_without_a_file, "missing: state partition 0, offsets 0 to 3"),
    ],
)
def test_what_does_not_fit_is_named(world: World, harm: Callable[[Tables], None], said: str) -> None:
    """Table, file, state partition and offset of what is missing, doubled, in no range or altered."""
    assert _faults(world) == ""
    harm(world.tables)
    assert said in _faults(world)
