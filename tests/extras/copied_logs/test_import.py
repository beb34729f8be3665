"""``acktrail tables import``: copied records into the tables, exactly once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs.world import batch as on_log
from jobs.world import snapshot
from samples.dump_lines import raw_table, write_dump
from samples.random_records import records as state_records
from state_topics.segment_bytes import batch, segment_file

from acktrail.config import TablesConfig
from acktrail.format.columns.decoding.decode_records import DECODED_RECORDS, decode_records
from acktrail.format.wire.raw_record import RawRecord
from acktrail.history.replay_resume import topic_at_time
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.record_files import RECORDS, RecordFiles
from acktrail_copied_logs.dialects import KAFKA_4_2, RELEASED
from acktrail_copied_logs.import_observation import NOT_ASKED, import_observation
from acktrail_expectations.gate import validate_run
from acktrail_jobs.frames import in_process
from acktrail_jobs.history.history_run import planned_steps
from acktrail_jobs.reconcile.reconcile_run import reconcile

TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"
KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId(TOPIC_ID), partition=7)


def raw(offset: int, *, partition: int = 3, epoch: int | None = None, dialect: str = "4.2") -> RawRecord:
    number = offset if epoch is None else epoch
    record = snapshot(KEY, number * 10, snapshot_epoch=number)
    if dialect == "4.0":
        record = replace(record, create_timestamp_ms=None, write_timestamp_ms=None, delivery_complete_count=None)
    key, value = RELEASED[dialect].encode(record)
    return RawRecord(state_partition=partition, offset=offset, timestamp_ms=9, key=key, value=value)


def tables_of(root: Path) -> Tables:
    return Tables(TablesConfig(uri=str(root)))


def imported(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str | Path, cluster: str = "c1") -> Done:
    return run(capsys, "tables", "import", *arguments, "--tables", root, "--cluster", cluster)


def summary(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str | Path) -> dict[str, Any]:
    return imported(capsys, root, *arguments, "--json").answer


def stored(root: Path) -> pa.Table:
    rows = tables_of(root).read("state_records", columns=DECODED_RECORDS.names)
    return rows.sort_by([("state_partition", "ascending"), ("offset", "ascending")])


def test_records_and_where_they_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are those of the decoder, damaged records kept; every range names the file, its SHA-256, the dialect and
    the run; the tables keep the dialect."""
    records = [raw(5), raw(6), replace(raw(7), value=b"\x00\x00\x01"), raw(2, partition=4)]
    file, root = write_dump(records, tmp_path / "state.jsonl"), tmp_path / "tables"

    said = summary(capsys, root, file, "--run-id", "r1")

    assert (said["records_new"], said["records_decoded"], said["records_quarantined"]) == (4, 3, 1)
    assert (said["dialect"], said["state_topic_id"], said["gaps"]) == ("4.2", None, [])
    assert stored(root).equals(decode_records(raw_table(sorted(records, key=lambda r: (r.state_partition, r.offset)))))
    rows = tables_of(root).read("state_records", columns=["cluster_id", "run_id"]).to_pylist()
    assert {(row["cluster_id"], row["run_id"]) for row in rows} == {("c1", "r1")}
    ranges = {r["state_partition"]: r for r in tables_of(root).read("export_ranges").to_pylist()}
    assert {(p, r["first_offset"], r["last_offset"]) for p, r in ranges.items()} == {(3, 5, 7), (4, 2, 2)}
    for row in ranges.values():
        assert row["source_file"] == "state.jsonl"
        assert row["source_digest"] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert (row["dialect"], row["run_id"], row["state_topic_id"]) == ("4.2", "r1", None)
        assert (row["log_start_offset"], row["log_end_offset"]) == (None, None)
    snapshot_of_table = tables_of(root).snapshot("state_records")
    assert snapshot_of_table is not None
    assert snapshot_of_table.properties["dialect"] == "4.2"


JUDGED: list[tuple[ShareSnapshot, set[str]]] = [
    (snapshot(KEY, 100, (on_log(100, 120),)), set()),
    (
        snapshot(KEY, 100, (on_log(100, 120), on_log(110, 130)), delivery_complete_count=31),
        {"batches_non_overlapping"},
    ),
    (snapshot(KEY, 100, (on_log(120, 130), on_log(100, 110))), {"batches_ascending"}),
    (
        snapshot(KEY, 100, (on_log(10, 20),), delivery_complete_count=0),
        {"start_offset_le_end_offset", "batches_not_below_start"},
    ),
    (snapshot(KEY, 0, snapshot_epoch=-5, state_epoch=-3, leader_epoch=-4), {"field_values_possible"}),
    (snapshot(KEY, 0, delivery_complete_count=2**31 - 1), {"delivery_complete_count_in_window"}),
]
"""First snapshots, each of a share partition of its own, and the rules that they break."""


def test_a_dump_alone_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The import is an observation too, of what files show: reconciliation, findings and gate work on it. Each verdict
    is unknown with the reason. Batches that overlap or descend, a start offset above the end, impossible numbers:
    findings and gate name the rules that are broken, and no other."""
    records = []
    for number, (state, _) in enumerate(JUDGED):
        key, value = KAFKA_4_2.encode(replace(state, key=replace(KEY, partition=number)))
        records.append(RawRecord(state_partition=3, offset=number, timestamp_ms=9, key=key, value=value))
    root = tmp_path / "tables"
    summary(capsys, root, write_dump(records, tmp_path / "state.jsonl"), "--run-id", "r1")

    reconcile(TablesConfig(uri=str(root)), in_process(), "r1")

    verdicts = tables_of(root).read("reconciliations").to_pylist()
    assert {row["verdict"] for row in verdicts} == {"unknown"}
    assert all("no broker was asked" in row["reason"] for row in verdicts)
    found = tables_of(root).read("findings").to_pylist()
    for number, (_, breaks) in enumerate(JUDGED):
        assert {row["rule"] for row in found if row["partition"] == number} == breaks | {"unknown"}
    failed = {each.expectation for each in validate_run(tables_of(root), "r1").failed}
    assert failed == {"unknown"}.union(*(breaks for _, breaks in JUDGED))


def test_records_are_counted_and_not_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that begins at a high offset has as many records to replay as were imported."""
    records = [raw(2**32 + number, epoch=number) for number in range(3)] + [raw(5, partition=4, epoch=3)]
    root = tmp_path / "tables"
    summary(capsys, root, write_dump(records, tmp_path / "state.jsonl"), "--run-id", "r1")

    coverages = topic_at_time(tables_of(root)).coverages
    assert {number: coverage.records_from(0) for number, coverage in coverages.items()} == {3: 3, 4: 1}
    files = RecordFiles(tables_of(root), tables_of(root).snapshot(RECORDS))
    (step,) = planned_steps(tables_of(root), files.oldest_first(files.paths), {})
    assert step.rows == {3: 3, 4: 1}


in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)


@st.composite
def logs(draw: st.DrawFn) -> list[RawRecord]:
    """Records of up to two state partitions, some damaged, dense offsets."""
    found = []
    for partition in draw(st.sets(st.integers(0, 3), min_size=1, max_size=2)):
        first = draw(st.integers(0, 9))
        for offset in range(first, first + draw(st.integers(1, 8))):
            key, value = KAFKA_4_2.encode(draw(state_records()))
            at, own = draw(st.integers(0, 99)), draw(st.sampled_from((key, None)))
            found.append(RawRecord(state_partition=partition, offset=offset, timestamp_ms=at, key=own, value=value))
    return found


@in_one_folder
@given(logs(), st.data())
def test_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    records: list[RawRecord],
    data: st.DataObject,
) -> None:
    """However a log is cut into files that overlap, in any order they are named in one call, and however often
    they are imported: every record is in the tables once, and the ranges cover each offset once."""
    folder = tmp_path_factory.mktemp("import")
    root, files, reached = folder / "tables", [], dict[int, int]()
    for number in range(data.draw(st.integers(1, 3))):
        size = data.draw(st.integers(0, len(records)))
        part = [r for r in records if reached.get(r.state_partition, 0) - 3 <= r.offset][:size]
        for r in part:
            reached[r.state_partition] = max(reached.get(r.state_partition, 0), r.offset)
        shuffled = data.draw(st.permutations(part))
        files.append(write_dump(shuffled, folder / f"{number}.jsonl"))
    files.append(write_dump(records, folder / "all.jsonl"))
    arguments = [*data.draw(st.permutations(files)), "--dialect", "4.2"]

    first = summary(capsys, root, *arguments)
    again = summary(capsys, root, *arguments)

    assert stored(root).equals(decode_records(raw_table(sorted(records, key=lambda r: (r.state_partition, r.offset)))))
    assert (first["records_new"], again["records_new"]) == (len(records), 0)
    assert again["records_known"] >= len(records)
    covered = [
        (row["state_partition"], offset)
        for row in tables_of(root).read("export_ranges").to_pylist()
        if row["first_offset"] is not None
        for offset in range(row["first_offset"], row["last_offset"] + 1)
    ]
    assert sorted(covered) == sorted((r.state_partition, r.offset) for r in records)


def test_a_log_grows_by_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later file that overlaps brings what is new; what is known is compared, not trusted."""
    root = tmp_path / "tables"
    summary(capsys, root, write_dump([raw(0), raw(1), raw(2)], tmp_path / "a.jsonl"))

    said = summary(capsys, root, write_dump([raw(1), raw(2), raw(3)], tmp_path / "b.jsonl"))

    assert (said["records_known"], said["records_new"]) == (2, 1)
    assert stored(root)["offset"].to_pylist() == [0, 1, 2, 3]
    other = write_dump([raw(2, epoch=77), raw(4)], tmp_path / "c.jsonl")
    line = imported(capsys, root, other).complaint(3)
    assert "offset 2: the record in the tables differs" in line
    assert stored(root)["offset"].to_pylist() == [0, 1, 2, 3]


def test_tables_of_another_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of another cluster than the tables' is refused before anything is written."""
    root, file = tmp_path / "tables", write_dump([raw(0)], tmp_path / "a.jsonl")
    summary(capsys, root, file)

    line = imported(capsys, root, write_dump([raw(1)], tmp_path / "b.jsonl"), cluster="c2").complaint(3)

    assert "belong to cluster c1, not to cluster c2" in line
    assert stored(root).num_rows == 1
    assert "no cluster" in imported(capsys, root, file, cluster=" ").complaint(2)


def test_holes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hole inside the files is recorded as a gap; one between the tables and the files is refused unless it is
    allowed; what lies before the tables' records comes too late."""
    root = tmp_path / "tables"
    said = summary(capsys, root, write_dump([raw(5), raw(9)], tmp_path / "a.jsonl"))
    assert said["gaps"] == [[3, 6, 8]]

    later = write_dump([raw(12), raw(13)], tmp_path / "b.jsonl")
    line = imported(capsys, root, later).complaint(2)
    assert "offsets 10 to 11 of state partition 3 are in no file" in line
    assert "--allow-gaps" in line
    assert summary(capsys, root, later, "--allow-gaps")["gaps"] == [[3, 10, 11]]
    for offset in (4, 7, 11):
        early = imported(capsys, root, write_dump([raw(offset)], tmp_path / "c.jsonl")).complaint(2)
        assert f"offset {offset} lies before what the tables have" in early
    assert stored(root)["offset"].to_pylist() == [5, 9, 12, 13]
    gaps = [(r["gap_first"], r["gap_last"]) for r in tables_of(root).read("export_ranges").to_pylist()]
    assert sorted(gap for gap in gaps if gap != (None, None)) == [(6, 8), (10, 11)]


def test_dialects_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of 4.0 are found, decoded and kept as such; other tables take no others."""
    old = write_dump([raw(0, dialect="4.0")], tmp_path / "old.jsonl")
    later = write_dump([raw(1)], tmp_path / "later.jsonl")

    assert summary(capsys, tmp_path / "old", old)["dialect"] == "4.0"
    (row,) = stored(tmp_path / "old").to_pylist()
    assert (row["start_offset"], row["write_timestamp_ms"], row["decode_status"]) == (0, None, "decoded")
    assert "hold records of dialect 4.0, not 4.2" in imported(capsys, tmp_path / "old", later).complaint(3)
    summary(capsys, tmp_path / "new", later)
    assert "hold records of dialect 4.2, not 4.0" in imported(capsys, tmp_path / "new", old).complaint(3)
    of_41 = write_dump([raw(2)], tmp_path / "41.jsonl")
    assert summary(capsys, tmp_path / "new", of_41, "--dialect", "4.1")["records_new"]
    assert "two dialects" in imported(capsys, tmp_path / "both", old, later).complaint(3)


def folder_of(root: Path, *, topic_id: str | None = TOPIC_ID, cluster: str | None = "c1") -> Path:
    """A copied log directory with one segment of two records."""
    file = segment_file(root, batch([raw(0), raw(1)]))
    if topic_id:
        (file.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster:
        (root / "meta.properties").write_text(f"#\nnode.id=1\ncluster.id={cluster}\nversion=1\n")
    return file


def test_what_lies_beside_a_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copied log directory says which cluster and which topic it is of; who contradicts it is refused."""
    file, root = folder_of(tmp_path / "copy"), tmp_path / "tables"

    assert "is of cluster c1" in imported(capsys, root, file, cluster="c2").complaint(3)
    other = "BQIDBAUGBwgJCgsMDQ4PEA"
    assert f"not of {other}" in imported(capsys, root, file, "--topic-id", other).complaint(3)
    assert "not a topic id" in imported(capsys, root, file, "--topic-id", "orders").complaint(2)
    assert not root.exists()
    said = summary(capsys, root, file)
    assert (said["state_topic_id"], said["records_new"]) == (TOPIC_ID, 2)
    (row,) = tables_of(root).read("export_ranges").to_pylist()
    assert (row["state_topic_id"], row["source_file"]) == (TOPIC_ID, f"__share_group_state-3/{file.name}")

    nameless = write_dump([raw(2)], tmp_path / "b.jsonl")
    line = imported(capsys, root, nameless).complaint(3)
    assert f"--topic-id {TOPIC_ID}" in line
    assert summary(capsys, root, nameless, "--topic-id", TOPIC_ID)["records_new"] == 1
    recreated = folder_of(tmp_path / "later", topic_id=other)
    assert other in imported(capsys, root, recreated).complaint(3)
    unknown = tmp_path / "unknown"
    summary(capsys, unknown, nameless)
    assert "of an unknown state topic" in imported(capsys, unknown, file).complaint(3)


def test_damage_becomes_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged batch of a segment is reported and recorded as a gap, a torn tail is reported; the rest is imported."""
    file = folder_of(tmp_path / "copy")
    parts = [batch([raw(offset)]) for offset in range(5)]
    parts[2] = parts[2][:-1] + b"\x55"
    file.write_bytes(b"".join(parts)[:-9])

    done = imported(capsys, tmp_path / "tables", file)

    assert done.code == 0
    assert stored(tmp_path / "tables")["offset"].to_pylist() == [0, 1, 3]
    assert "gap: state partition 3, offsets 2 to 2 are in no file" in done.stdout
    *damage, made = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert damage == ["corrupt batch", "torn tail"]
    assert made == f"new tables were made at {tmp_path / 'tables'}"


def test_what_has_no_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A segment without a known state partition is not imported, nor are two records at one address."""
    file = tmp_path / "0.log"
    file.write_bytes(batch([raw(0)]))

    assert "--state-partition" in imported(capsys, tmp_path / "t", file).complaint(2)
    assert imported(capsys, tmp_path / "t", file, "--state-partition", "3").code == 0
    twice = write_dump([raw(5), raw(5, epoch=1)], tmp_path / "a.jsonl")
    assert "two different records" in imported(capsys, tmp_path / "u", twice).complaint(2)
    assert imported(capsys, tmp_path / "v", write_dump([], tmp_path / "b.jsonl")).code == 0


@pytest.mark.parametrize("is_damaged", [False, True])
def test_files_alone_are_reconciled_and_validated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_damaged: bool
) -> None:
    """Tables of files only have an observation: a verdict that says why it is unknown, and a gate that stops on
    overlapping batches."""
    second = StateBatch(first_offset=3 if is_damaged else 5, last_offset=9, delivery_state=2, delivery_count=1)
    batches = (StateBatch(first_offset=0, last_offset=4, delivery_state=2, delivery_count=1), second)
    key, value = KAFKA_4_2.encode(snapshot(KEY, 0, batches, snapshot_epoch=0))
    record = RawRecord(state_partition=3, offset=5, timestamp_ms=9, key=key, value=value)
    root = tmp_path / "tables"
    rows = summary(capsys, root, write_dump([record], tmp_path / "state.jsonl"))["rows"]

    reconciled = run(capsys, "run", "reconcile", "--tables", root, "--master", "in-process")
    gate = run(capsys, "run", "validate", "--tables", root, "--json")

    assert (rows["group_observations"], rows["offset_observations"]) == (2, 6)
    assert reconciled.code == 0
    (verdict,) = tables_of(root).rows("reconciliations")
    assert (verdict["verdict"], NOT_ASKED in verdict["reason"], verdict["durable_lag"]) == ("unknown", True, None)
    assert gate.code == (6 if is_damaged else 0)


def test_import_into_tables_of_an_export_observes_nothing(tmp_path: Path) -> None:
    """Tables with a record that an export read from the cluster keep the observations that its brokers answered."""
    tables = tables_of(tmp_path / "tables")
    rows = [{"state_partition": 3, "last_offset": 7, "source_file": name} for name in ("state.jsonl", None)]
    named = {"cluster_id": "c1", "run_id": "r2", "topic_id": None}
    tables.append("export_ranges", rows[:1])
    assert len(import_observation(tables, **named)) == 2
    tables.append("export_ranges", rows[1:])
    assert import_observation(tables, **named) == ()
