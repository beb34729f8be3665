"""Which tables are whole: nothing that is in order is refused, nothing that lost a commit is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from samples.memory_source import MemoryLog
from tables.test_sink import PAIRS, export

from acktrail.config import TablesConfig
from acktrail.errors import DamagedTables
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import ensure_whole


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Three commits of records, each with its ranges."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "tables")))
    log = MemoryLog(pairs=PAIRS)
    for end in (4, 8, 12):
        log.end_offset = end
        export(tables, log)
    return tables


def _log(tables: Tables, name: str) -> list[Path]:
    return sorted(Path(tables.root, name, "_delta_log").glob("*.json"))


def test_log_files_that_were_removed_in_time_are_no_loss(tables: Tables) -> None:
    """Before a checkpoint the log may be cleaned: exports continue."""
    tables.append("state_records", tables.read("state_records").slice(0, 0))
    DeltaTable(f"{tables.root}/state_records").create_checkpoint()
    for file in _log(tables, "state_records")[:-1]:
        file.unlink()
    ensure_whole(tables)
    export(tables, MemoryLog(pairs=PAIRS, end_offset=15))
    assert tables.read("state_records").num_rows == 15


def test_another_commit_in_the_place_of_a_lost_one_is_found(tables: Tables) -> None:
    """The version is the same, the commit is not."""
    _log(tables, "state_records")[-1].unlink()
    tables.append("state_records", tables.read("state_records").slice(0, 1))
    with pytest.raises(DamagedTables, match="has others in their place"):
        ensure_whole(tables)


def test_a_lost_copy_is_made_again(tables: Tables) -> None:
    """``export_ranges`` that lost its newest commit is whole again with the next export: it is a copy."""
    _log(tables, "export_ranges")[-1].unlink()
    ensure_whole(tables)
    export(tables, MemoryLog(pairs=PAIRS, end_offset=12))
    assert sum(row["records_read"] for row in tables.read("export_ranges").to_pylist()) == 12


def test_a_snapshot_knows_its_own_commits_while_others_write(tables: Tables) -> None:
    """Commits made after a table was opened take no place in its list: neither their number nor their content."""
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    before = snapshot.commits(after=-1)
    export(tables, MemoryLog(pairs=PAIRS, end_offset=15))

    assert snapshot.commits(after=-1) == before
    assert snapshot.commits(after=snapshot.version - 1) == {snapshot.version: before[snapshot.version]}
    assert list(before) == list(range(snapshot.version + 1))
