"""The Delta sink: ranges and records agree, for one cluster and one state topic."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, DamagedTables, ForeignCluster
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS, TABLES, TOPICS
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.tables.delta import table_layout
from acktrail.tables.delta.store import Tables
from acktrail.tables.records import export_ranges
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.records.damage_report import find_damage
from acktrail.tables.records.export_ranges import copy_ranges, ranges_text, read_ranges
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink, departed, named
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.task_execution import FlushPolicy, TaskExecution

PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x07", b"")]
"""A tombstone and a record of an unknown type."""

NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def sink_of(tables: Tables, *, cluster_id: str = "c1", run_id: str = "run") -> DeltaSink:
    return DeltaSink(tables, cluster_id=cluster_id, run_id=run_id, clock=lambda: NOON)


def export(tables: Tables, *logs: MemoryLog, cluster_id: str = "c1", flush_rows: int = 10) -> Any:
    source = MemoryTask(logs, cluster_id=f"state/{cluster_id}", batch_rows=4)
    return TaskExecution(source, sink_of(tables, cluster_id=cluster_id), policy=FlushPolicy(rows=flush_rows)).run()


def task_of(log: MemoryLog, sink: DeltaSink) -> MemoryTask:
    """The reading of one log in batches of four records, started where `sink` says."""
    task = MemoryTask([log], cluster_id="c1", batch_rows=4)
    task.start(SourceTaskContext(position=sink.position))
    return task


def batch_of(task: MemoryTask) -> SourceBatch:
    (batch,) = task.poll(0)
    return batch


def ensure_accounted(tables: Tables, *, is_pruned: bool = False) -> dict[int, list[int]]:
    """Every record is in one range, ranges and gaps do not overlap and leave nothing out, and counts add up; the first
    and last offset of each state partition. `is_pruned`: a log may have begun behind 0."""
    kinds = (("first_offset", "last_offset"), ("gap_first", "gap_last"))
    covered, gaps = (
        Counter(
            (row["state_partition"], at)
            for row in ranges(tables)
            if row[first] is not None
            for at in range(row[first], row[last] + 1)
        )
        for first, last in kinds
    )
    assert sorted(covered) == exported(tables)
    assert set((covered + gaps).values()) <= {1}
    ends = {}
    for number in {partition for partition, _ in covered + gaps}:
        offsets = [at for partition, at in covered + gaps if partition == number]
        ends[number] = [min(offsets), max(offsets)]
        assert len(offsets) == max(offsets) + 1 - (min(offsets) if is_pruned else 0)
    statuses = tables.read("state_records", columns=["decode_status"])["decode_status"].to_pylist()
    counts = {name: sum(row[name] for row in ranges(tables)) for name in ("records_read", "records_quarantined")}
    assert counts == {"records_read": len(statuses), "records_quarantined": len(statuses) - statuses.count("decoded")}
    assert all(row["records_decoded"] + row["records_quarantined"] == row["records_read"] for row in ranges(tables))
    assert find_damage(tables).is_sound
    return ends


def exported(tables: Tables) -> list[tuple[int, int]]:
    rows = tables.read("state_records", columns=["state_partition", "offset"])
    return sorted(zip(rows["state_partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def ranges(tables: Tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tables.read("export_ranges").to_pylist()
    return rows


def observed(source_partition: str, name: str, rows: list[dict[str, object]]) -> SourceBatch:
    found = pa.Table.from_pylist(rows, schema=TABLES[name])
    return SourceBatch(source_partition=SourcePartition(source_partition), rows={name: found})


def test_rows_are_stamped_and_ranges_say_what_was_read(tables: Tables) -> None:
    """Every record carries cluster and run; its partition's range has the counts, bounds and time of the commit."""
    export(tables, MemoryLog(pairs=PAIRS, partition=3, start_offset=5, end_offset=12))
    records = tables.read("state_records")
    assert set(records["cluster_id"].to_pylist()) == {"c1"}
    assert set(records["run_id"].to_pylist()) == {"run"}
    (own,) = ranges(tables)
    assert {name: value for name, value in own.items() if value is not None} == {
        "cluster_id": "c1",
        "records_version": 1,
        "run_id": "run",
        "state_topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "exported_at": NOON,
        "state_partition": 3,
        "first_offset": 5,
        "last_offset": 11,
        "log_start_offset": 5,
        "log_end_offset": 12,
        "records_read": 7,
        "records_decoded": 3,
        "records_quarantined": 4,
    }


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=4
    )
)
def test_ranges_cover_exactly_the_records(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int, int]]
) -> None:
    """Over runs with growing, pruned logs: the ranges name each exported offset once, gaps name each lost one."""
    tables = Tables(TablesConfig(uri=str(tmp_path_factory.mktemp("tables"))))
    logs = [MemoryLog(pairs=PAIRS, partition=number) for number in (0, 1)]
    for grown, grown_too, pruned, flush_rows in runs:
        logs[0].end_offset += grown
        logs[1].end_offset += grown_too
        logs[0].start_offset = min(logs[0].start_offset + pruned, logs[0].end_offset)
        summary = export(tables, *logs, flush_rows=flush_rows)
        assert summary.records_decoded + summary.records_quarantined == summary.records_read
    ensure_accounted(tables, is_pruned=True)


def test_gap_between_two_batches_of_one_commit_is_kept(tables: Tables) -> None:
    """A log pruned while it is read: the commit's ranges leave out what was lost and name it."""
    log = MemoryLog(pairs=PAIRS, end_offset=20)
    sink = sink_of(tables)
    task = task_of(log, sink)
    for start_offset in (0, 0, 11, 11):
        log.start_offset = start_offset
        sink.put(batch_of(task))
    sink.flush()
    rows = sorted(ranges(tables), key=lambda row: int(row["first_offset"]))
    bounds = [tuple(row[name] for name in ("first_offset", "last_offset", "gap_first", "gap_last")) for row in rows]
    assert bounds == [(0, 7, None, None), (11, 18, 8, 10)]
    ensure_accounted(tables)


def test_two_who_repair_at_once_copy_each_range_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is overtaken while copying looks again and finds nothing left to do."""
    other = Tables(tables.config)
    export(tables, MemoryLog(pairs=PAIRS, end_offset=8))
    tables.append("state_records", tables.read("state_records").slice(0, 0), metadata={"ranges": "[]"})
    text = ranges_text(ranges(tables))
    tables.append("state_records", tables.read("state_records").slice(0, 0), metadata={"ranges": text})
    append = tables.append

    def overtaken(*arguments: Any, **options: Any) -> int:
        monkeypatch.undo()
        assert copy_ranges(other) == 1
        return append(*arguments, **options)

    monkeypatch.setattr(tables, "append", overtaken)
    assert copy_ranges(tables) == 0
    assert len(ranges(tables)) == 2


def test_crash_between_the_two_commits_is_repaired(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records landed, ranges did not: the next start brings them, once, for every writer, however often."""

    class Crash(BaseException):
        """The process ends here."""

    def crash_after_records(tables: Tables) -> int:
        if tables.exists("state_records"):
            raise Crash
        return 0

    log = MemoryLog(pairs=PAIRS, end_offset=8)
    with monkeypatch.context() as crash:
        crash.setattr(export_ranges, "copy_ranges", crash_after_records)
        with pytest.raises(Crash):
            export(tables, log)
    assert len(exported(tables)) == 8
    assert ranges(tables) == []
    for _ in range(3):
        sink_of(tables, run_id="later").start()
    ensure_accounted(tables)
    assert {row["run_id"] for row in ranges(tables)} == {"run"}


def test_another_cluster_is_refused(tables: Tables) -> None:
    """Tables of one cluster take nothing of another: no records, no observations, and no new rows appear."""
    export(tables, MemoryLog(pairs=PAIRS, end_offset=4))
    with pytest.raises(ForeignCluster) as caught:
        export(tables, MemoryLog(pairs=PAIRS, end_offset=9), cluster_id="c2")
    assert "c1" in caught.value.message
    assert "c2" in caught.value.message
    assert caught.value.hint
    with pytest.raises(ForeignCluster):
        sink_of(tables).put(observed("t", "group_observations", [{"cluster_id": "c2", "phase": "before"}]))
    assert len(exported(tables)) == 4


def test_observations_alone_bind_the_tables_to_their_cluster(tables: Tables) -> None:
    """A cluster without any state record still owns the tables that its observations made."""
    sink = sink_of(tables)
    sink.put(observed("t", "group_observations", [{"run_id": "run", "phase": "before", "group_id": "g"}]))
    sink.flush()
    with pytest.raises(ForeignCluster):
        export(tables, MemoryLog(pairs=PAIRS, end_offset=4), cluster_id="c2")
    assert not tables.exists("state_records")


def test_recreated_state_topic_is_refused(tables: Tables) -> None:
    """The same cluster with a new state topic is refused before anything is written; both ids are named."""
    export(tables, MemoryLog(pairs=PAIRS, end_offset=4))
    with pytest.raises(ForeignCluster) as caught:
        export(tables, MemoryLog(pairs=PAIRS, end_offset=2, topic_id="BBBBBBBBBBBBBBBBBBBBBA"))
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in caught.value.message
    assert "BBBBBBBBBBBBBBBBBBBBBA" in caught.value.message
    assert len(exported(tables)) == 4


@pytest.mark.parametrize("change", [{"position": 2}, {"records": 3}, {"last_offset": 9}])
def test_batch_that_contradicts_itself_is_refused(tables: Tables, change: dict[str, int]) -> None:
    """A source that miscounts or goes back is a defect that must not reach the tables."""
    log = MemoryLog(pairs=PAIRS, end_offset=8)
    sink = sink_of(tables)
    task = task_of(log, sink)
    sink.put(batch_of(task))
    wrong = batch_of(task)
    with pytest.raises(ValueError, match="c1/"):
        sink.put(altered(wrong, **change))


def altered(batch: SourceBatch, *, position: Position | None = None, **span: int) -> SourceBatch:
    assert batch.span is not None
    return replace(batch, position=position or batch.position, span=replace(batch.span, **span))


def test_a_phase_lands_once(tables: Tables) -> None:
    """In several batches it lands whole in one flush; the sink that flushed it refuses more of it, another one knows it
    as its own batch that is sent again."""
    batch = observed("t", "group_observations", [{"run_id": "run", "phase": "before", "group_id": "g"}])
    for _ in range(2):
        sink = sink_of(tables)
        sink.put(batch)
        sink.put(batch)
        sink.flush()
        with pytest.raises(ValueError, match="this one was committed already"):
            sink.put(batch)
    assert tables.read("group_observations").num_rows == 2
    with pytest.raises(ValueError, match="one phase"):
        sink.put(observed("t", "group_observations", [{"run_id": "run", "group_id": "g"}]))


def topic(topic_id: str, name: str, hour: int) -> dict[str, object]:
    seen = NOON + dt.timedelta(hours=hour)
    return {
        "cluster_id": "c1",
        "topic_id": topic_id,
        "topic": name,
        "partition_count": hour + 1,
        "first_seen_at": seen,
        "last_seen_at": seen,
        "status": "present",
        "run_id": f"run {hour}",
    }


def test_topics_remember_what_is_gone(tables: Tables) -> None:
    """First seen stays, last seen moves; a missing topic is deleted, one under a new id recreated by that id."""
    listings: list[list[dict[str, object]]] = [
        [topic("a1", "a", 0), topic("b1", "b", 0), topic("c1", "c", 0)],
        [topic("a1", "a", 1), topic("b2", "b", 1)],
        [topic("a1", "a", 2), topic("b3", "b", 2)],
        [],
    ]
    for rows in listings:
        sink = sink_of(tables)
        sink.put(observed("topics", "topics", rows))
        sink.flush()
    found = {row["topic_id"]: row for row in tables.read("topics").to_pylist()}
    assert {key: (row["status"], row["successor_topic_id"]) for key, row in found.items()} == {
        "a1": ("present", None),
        "b1": ("recreated", "b3"),
        "b2": ("recreated", "b3"),
        "b3": ("present", None),
        "c1": ("deleted", None),
    }
    assert (found["a1"]["first_seen_at"], found["a1"]["last_seen_at"]) == (NOON, NOON + dt.timedelta(hours=2))
    assert found["a1"]["partition_count"] == 3
    assert found["c1"]["last_seen_at"] == NOON


def test_listing_that_changes_nothing_departs_nothing() -> None:
    """Rows already marked as gone are not written again."""
    known = [topic("a1", "a", 0) | {"status": "deleted", "successor_topic_id": None}]
    assert departed(known, [topic("b1", "b", 1)]) == []
    assert departed(known, [topic("a2", "a", 1)])[0]["status"] == "recreated"


def test_rows_of_a_commit_lie_by_state_partition(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the batches of source partitions come: each piece of the file with least and greatest values of its own
    is of one state partition, in log order, so that a reader of some skips the others."""
    _, _, numbers = table_layout._MASSES["state_records"]
    monkeypatch.setitem(table_layout._MASSES, "state_records", (STATE_RECORDS, 4, numbers))
    export(tables, *(MemoryLog(pairs=PAIRS, partition=number, end_offset=8) for number in (2, 0, 1)), flush_rows=100)
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    (file,) = snapshot.delta.file_uris()
    found = pq.ParquetFile(file)
    pieces = [found.read_row_group(n, ["state_partition", "offset"]).to_pydict() for n in range(found.num_row_groups)]
    assert [piece["state_partition"] for piece in pieces] == [[number] * 4 for number in (0, 0, 1, 1, 2, 2)]
    assert [piece["offset"] for piece in pieces] == 3 * [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.fixture
def exported_thrice(tables: Tables) -> Tables:
    """Three commits of records, each with its ranges."""
    log = MemoryLog(pairs=PAIRS)
    for end in (4, 8, 12):
        log.end_offset = end
        export(tables, log)
    return tables


def _log(tables: Tables, name: str) -> list[Path]:
    return sorted(Path(tables.root, name, "_delta_log").glob("*.json"))


def test_log_files_that_were_removed_in_time_are_no_loss(exported_thrice: Tables) -> None:
    """Before a checkpoint the log may be cleaned: exports continue."""
    exported_thrice.append("state_records", exported_thrice.read("state_records").slice(0, 0))
    DeltaTable(f"{exported_thrice.root}/state_records").create_checkpoint()
    for file in _log(exported_thrice, "state_records")[:-1]:
        file.unlink()
    ensure_whole(exported_thrice)
    export(exported_thrice, MemoryLog(pairs=PAIRS, end_offset=15))
    assert exported_thrice.read("state_records").num_rows == 15


def test_another_commit_in_the_place_of_a_lost_one_is_found(exported_thrice: Tables) -> None:
    """The version is the same, the commit is not."""
    _log(exported_thrice, "state_records")[-1].unlink()
    exported_thrice.append("state_records", exported_thrice.read("state_records").slice(0, 1))
    with pytest.raises(DamagedTables, match="has others in their place"):
        ensure_whole(exported_thrice)


def test_a_lost_copy_is_made_again(exported_thrice: Tables) -> None:
    """``export_ranges`` that lost its newest commit is whole again with the next export: it is a copy."""
    _log(exported_thrice, "export_ranges")[-1].unlink()
    ensure_whole(exported_thrice)
    export(exported_thrice, MemoryLog(pairs=PAIRS, end_offset=12))
    assert sum(row["records_read"] for row in exported_thrice.read("export_ranges").to_pylist()) == 12


def test_ranges_of_an_older_copy_are_read_anew(exported_thrice: Tables, tmp_path: Path) -> None:
    """A copy that was put back and written on repeats the table's id and versions, with other ranges."""
    copy = tmp_path / "copy"
    shutil.copytree(exported_thrice.root, copy)
    ends = []
    for end in (15, 18):
        shutil.rmtree(exported_thrice.root)
        shutil.copytree(copy, exported_thrice.root)
        export(Tables(exported_thrice.config), MemoryLog(pairs=PAIRS, end_offset=end))
        snapshot = Tables(exported_thrice.config).snapshot("export_ranges")
        assert snapshot is not None
        ends.append((snapshot.version, max(read_ranges(exported_thrice)["last_offset"].to_pylist())))
    assert ends == [(4, 14), (4, 17)]


def test_a_snapshot_knows_its_own_commits_while_others_write(exported_thrice: Tables) -> None:
    """Commits made after a table was opened take no place in its list: neither their number nor their content."""
    snapshot = exported_thrice.snapshot("state_records")
    assert snapshot is not None
    before = snapshot.commits(after=-1)
    export(exported_thrice, MemoryLog(pairs=PAIRS, end_offset=15))

    assert snapshot.commits(after=-1) == before
    assert snapshot.commits(after=snapshot.version - 1) == {snapshot.version: before[snapshot.version]}
    assert list(before) == list(range(snapshot.version + 1))


def test_a_hidden_topic_keeps_what_was_seen_of_it() -> None:
    """A topic that may not be described any more is not deleted, and its name and size stay."""
    row: dict[str, Any] = dict.fromkeys(TOPICS.names)
    seen = {**row, "topic_id": "a", "topic": "orders", "partition_count": 3, "is_internal": False, "status": "present"}
    hidden = [
        {**row, "topic_id": number, "status": "not_authorized", "last_seen_at": NOON, "run_id": "r2"} for number in "ab"
    ]
    assert named([seen], hidden) == [
        {**seen, "status": "not_authorized", "last_seen_at": NOON, "run_id": "r2"},
        hidden[1],
    ]


def test_tables_that_are_deleted_meanwhile_are_not_made_anew(tables: Tables) -> None:
    """Neither by the next commit nor by a further start: what was exported before would be missing in silence."""
    sink = sink_of(tables)
    task = task_of(MemoryLog(pairs=PAIRS, end_offset=20), sink)
    sink.put(batch_of(task))
    sink.flush()
    shutil.rmtree(tables.root)
    sink.put(batch_of(task))
    for use in (sink.flush, sink.start):
        with pytest.raises(
            ConfigurationError, match="state_records does not exist any more: it was deleted during the write"
        ):
            use()
    assert not Path(tables.root).exists()
