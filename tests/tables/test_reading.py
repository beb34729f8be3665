"""Every table read to its last row: every contradiction is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs.world import World, batch, key_of, snapshot, update

from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, RetryableError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_report import contradictions, find_damage, present_records


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


def _zeroed(file: Path, column: str) -> None:
    """Zeros in the place of the data of one column; the file's size stays."""
    group = pq.read_metadata(file).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    content = file.read_bytes()
    end = begin + chunk.total_compressed_size
    file.write_bytes(content[:begin] + bytes(end - begin) + content[end:])


@pytest.mark.parametrize(("table", "column"), [("state_records", "value"), ("group_observations", "group_id")])
def test_every_column_of_every_table_is_read(world: World, table: str, column: str) -> None:
    """A file of the right size whose data cannot be read is damaged, whichever column it is."""
    _zeroed(next(Path(world.tables.root, table).glob("*.parquet")), column)
    with pytest.raises(DamagedTables):
        world.tables.read(table)
    assert f"{table} cannot be read" in _faults(world)


class _Once:
    """Fails the first time."""

    def __init__(self, function: Callable[..., object], error: Exception) -> None:
        self.function, self.errors = function, [error]

    def __call__(self, *given: object, **named: object) -> object:
        if self.errors:
            raise self.errors.pop()
        return self.function(*given, **named)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError("unexpected end"), RetryableError), (PermissionError("permission denied"), ConfigurationError)],
)
def test_what_cannot_be_read_now_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[AcktrailError]
) -> None:
    """A file that is read the second time, and one without rights, are no damage: no row is taken for lost."""
    monkeypatch.setattr(pq, "ParquetFile", _Once(pq.ParquetFile, error))
    with pytest.raises(raised) as caught:
        find_damage(world.tables)
    assert not isinstance(caught.value, DamagedTables)
    assert _faults(world) == ""


def test_records_of_a_file_that_cannot_be_read_are_not_absent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which records are there is not known then."""
    error = DamagedTables("cannot be read", hint="", table="state_records")
    monkeypatch.setattr(world.tables, "file_batches", _Once(world.tables.file_batches, error))
    with pytest.raises(RetryableError, match="only at times"):
        present_records(world.tables)
    assert present_records(world.tables).rows == {0: 8}
