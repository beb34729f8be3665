"""Every table read to its last row: every contradiction is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from jobs.world import World, batch, key_of, snapshot, update

from acktrail.cli.doctor_checks import reading_checks
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_report import find_damage


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "tables", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(4)))
    world.observe("r1")
    world.write(*(update(key_of(f"g{index}"), 0, 3, (batch(0, 2),)) for index in range(4)))
    world.observe("r2")
    return world


def _faults(world: World) -> dict[str, str]:
    return {check.what: check.detail for check in reading_checks(world.config) if check.status == "missing"}


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


def _without_observations(tables: Tables) -> None:
    for file in Path(tables.root, "group_observations").glob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("harm", "what", "said"),
    [
        (_again, "records and ranges", "1 records of state partition 0 are stored twice"),
        (
            _beside,
            "records and ranges",
            "1 records are in no range, the first ones: state partition 0, offsets 20 to 20",
        ),
        (_altered, "records and raw bytes", "differ at state partition 0, offset 5"),
        (_without_a_file, "table state_records", "is missing"),
        (
            _without_a_file,
            "records and ranges",
            "4 records are missing, the first ones: state partition 0, offsets 0 to 3",
        ),
        (_without_observations, "table group_observations", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_named(world: World, harm: Callable[[Tables], None], what: str, said: str) -> None:
    """Table, file, state partition and offset of what is missing, doubled, in no range, altered or unreadable."""
    assert _faults(world) == {}
    harm(world.tables)
    assert said in _faults(world)[what]


@pytest.mark.parametrize("harm", [_again, _beside, _without_a_file])
def test_repair_lists_what_doctor_lists(world: World, harm: Callable[[Tables], None]) -> None:
    """Doubled, unranged and missing records are faults of the one report that doctor and repair show."""
    assert find_damage(world.tables).is_sound
    harm(world.tables)
    report = find_damage(world.tables)
    assert not report.is_sound
    assert "; ".join(report.record_faults()) == _faults(world)["records and ranges"]


def test_what_fits_is_counted(world: World) -> None:
    """Records, ranges and rows of every table that is there."""
    found = {check.what: check.detail for check in reading_checks(world.config)}
    assert found["records and ranges"] == "8 records, each in one range"
    assert found["records and raw bytes"] == "8 records agree with their bytes"
    assert found["table export_ranges"] == "2 rows"
