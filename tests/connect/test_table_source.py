"""Rows of a Delta table are given once, in the order of its commits; maintenance adds and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, DamagedTables, InputError
from acktrail.model.log_positions import Position
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_root import table_root
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.source_testing import SourceSuite
from acktrail_connect.sources.table_source import AddedFile, DeltaTableSource, file_rows


class TestDeltaTableSource(SourceSuite):
    """Everything that is asked of a source; commits of several rows, batches of two, a compaction after each."""

    connector_class = DeltaTableSource
    examples = 5
    poll_s = 0.01
    numbers = count()

    def config(self) -> Mapping[str, str]:
        return {"tables": str(self.folder), "table": "findings", "batch.rows": "2", "interval.ms": "1"}

    def write(self, count: int) -> None:
        left = count
        while left:
            rows = min(left, 5)
            append(self.folder, [next(self.numbers) for _ in range(rows)])
            left -= rows
        if count:
            findings(self.folder).optimize.compact()


Place = Path | TablesConfig


def at(place: Place) -> TablesConfig:
    return place if isinstance(place, TablesConfig) else TablesConfig(uri=str(place))


def append(place: Place, numbers: list[int]) -> None:
    rows, own = pa.table({"n": pa.array(numbers, pa.int64())}), at(place)
    write_deltalake(f"{own.uri}/findings", rows, mode="append", storage_options=dict(own.options))


def findings(place: Place) -> DeltaTable:
    return DeltaTable(f"{at(place).uri}/findings", storage_options=dict(at(place).options))


def read(place: Place, position: Position | None = None, **config: str) -> list[SourceBatch]:
    """What a bounded task gives."""
    keys = {"tables": at(place).uri, "table": "findings", "bounded": "true", "interval.ms": "1"}
    keys |= {f"option.{name}": value for name, value in at(place).options.items()}
    connector = DeltaTableSource(DeltaTableSource.config_def.parse({**keys, **config}))
    (own,) = connector.task_configs(3)
    task = connector.task(own)
    batches: list[SourceBatch] = []
    deadline = time.monotonic() + 60
    try:
        task.start(SourceTaskContext(position=lambda _: position))
        while not task.is_finished:
            assert time.monotonic() < deadline, "the bounded run does not end"
            batches += task.poll(0.01)
    finally:
        task.stop()
    return batches


def rows_of(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for rows in batch.rows.values() for row in rows.to_pylist()]


def numbers_of(batches: list[SourceBatch]) -> list[int]:
    return [row["n"] for row in rows_of(batches)]


@pytest.mark.parametrize("where", ["tmp_path", "bucket"])
def test_a_compaction_and_a_vacuum_add_and_lose_nothing(request: pytest.FixtureRequest, where: str) -> None:
    """A reader that is already past the compacted versions continues normally; commits without rows move the position,
    too. Rows that are only in vacuumed files are reported, not skipped."""
    place: Place = request.getfixturevalue(where)
    for number in range(4):
        append(place, [number])
    before = read(place)
    assert numbers_of(before) == [0, 1, 2, 3]
    table = findings(place)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    after = read(place, before[-1].position)
    assert numbers_of(after) == []
    end = {"table_id": str(table.metadata().id), "version": findings(place).version() + 1, "file": 0, "row": 0}
    assert after[-1].position == end
    append(place, [4])
    assert numbers_of(read(place, after[-1].position)) == [4]
    with pytest.raises(DamagedTables, match="a vacuum removed it") as found:
        read(place)
    assert "start=end" in found.value.hint


def test_a_restart_in_a_file_reads_its_later_row_groups_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any row: those before it are not decoded again."""
    append(tmp_path, [0])
    (file,) = (tmp_path / "findings").glob("*.parquet")
    pq.write_table(pa.table({"n": range(20)}), file, row_group_size=6)
    place = TablePlace(name="findings", root=table_root(at(tmp_path)))
    given: list[range] = []
    own = pq.ParquetFile.iter_batches

    def iter_batches(opened: Any, **how: Any) -> Any:
        given.append(how["row_groups"])
        return own(opened, **how)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    added = AddedFile(path=file.name, partition_values={})
    for first in range(21):
        parts = [*file_rows(place, added, pa.schema([("n", pa.int64())]), first=first, rows=4)]
        assert [number for part in parts for number in part["n"].to_pylist()] == [*range(first, 20)]
        assert given[-1] == range(4 if first == 20 else first // 6, 4)


def test_a_version_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """Versions that a cleanup of the log removed are named, not skipped."""
    append(tmp_path, [0])
    append(tmp_path, [1])
    findings(tmp_path).create_checkpoint()
    (tmp_path / "findings/_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(DamagedTables, match="version 0 is not there any more"):
        read(tmp_path)
    assert numbers_of(read(tmp_path, start="end")) == []


def test_the_end_is_kept_from_the_first_start(tmp_path: Path) -> None:
    """start=end gives a position at once: a restart before the first row does not move it. A table that is not there
    yet is new as a whole."""
    (none,) = read(tmp_path, start="end") or [None]
    assert none is None
    append(tmp_path, [0])
    (first,) = read(tmp_path, start="end")
    assert not first.rows
    append(tmp_path, [1])
    assert numbers_of(read(tmp_path, first.position, start="end")) == [1]


def test_changed_rows_are_refused_or_given_as_rewritten(tmp_path: Path) -> None:
    """A commit that takes rows away fails the task; with updates=rewritten the rows of the new files come."""
    append(tmp_path, [0, 1, 2])
    findings(tmp_path).update(predicate="n = 1", updates={"n": "n + 10"})
    findings(tmp_path).delete("n = 2")
    with pytest.raises(ConfigurationError, match="version 1 of the table findings removed or changed rows"):
        read(tmp_path)
    found = numbers_of(read(tmp_path, updates="rewritten"))
    assert found[:3] == [0, 1, 2]
    assert sorted(found[3:6]) == [0, 2, 11]
    assert sorted(found[6:]) == [0, 11]


def test_partition_columns_and_new_columns(tmp_path: Path) -> None:
    """Columns that are in no file come from the log with their type; a file without a newer column has nulls."""
    folder = str(tmp_path / "findings")
    first = pa.table({"n": [1, 2, 3], "day": ["a b", None, "a b"]})
    write_deltalake(folder, first, partition_by=["day"])
    wider = pa.table({"n": [4], "day": ["x"], "text": ["t"]})
    write_deltalake(folder, wider, mode="append", schema_mode="merge")
    found = sorted(rows_of(read(tmp_path)), key=lambda row: row["n"])
    assert found == [
        {"n": 1, "day": "a b", "text": None},
        {"n": 2, "day": None, "text": None},
        {"n": 3, "day": "a b", "text": None},
        {"n": 4, "day": "x", "text": "t"},
    ]


def test_another_table_in_the_place_is_noticed(tmp_path: Path) -> None:
    """A table that was created again, is gone, or went back to an older version is no continuation."""
    append(tmp_path, [0])
    position = read(tmp_path)[-1].position
    (tmp_path / "findings").rename(tmp_path / "old")
    with pytest.raises(DamagedTables, match="the table is not there any more"):
        read(tmp_path, position)
    append(tmp_path, [7])
    with pytest.raises(ConfigurationError, match="not the table that was read before"):
        read(tmp_path, position)


def test_names_and_positions_of_strangers_are_refused(tmp_path: Path) -> None:
    """No name leads out of the root, which a validation says too; a position is checked before it counts."""
    for name in ("../../etc", "a/b", "", "..", ".hidden", "a\nb"):
        texts = {"tables": "x", "table": name}
        assert [each.name for each in DeltaTableSource.config_def.validate(texts) if each.errors] == ["table"]
        with pytest.raises(ConfigurationError):
            read(tmp_path, table=name)
    connector = DeltaTableSource(DeltaTableSource.config_def.parse({"tables": "x", "table": "t"}))
    (own,) = connector.source_partitions()
    for wrong in (3, {}, {"table_id": 1, "version": 0, "file": 0, "row": 0}, {"table_id": None, "version": -1}):
        with pytest.raises(InputError):
            connector.check_position(own, wrong)
    with pytest.raises(InputError):
        connector.source_partition({"table": "other"})
