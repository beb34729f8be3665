"""Tables on object storage: the same commits, and no commit at all where the storage cannot keep writers apart."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import S3
from tables.test_maintenance import Exporter, ensure_accounted, rows_of

from acktrail.config import TablesConfig
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables
from acktrail.tables import bucket
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_report import find_damage
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.exported.export_ranges import EMPTY_COMMIT
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain

PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x07", b"")]


@pytest.fixture(autouse=True)
def _distrust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test's storage is new to this process, on any port."""
    monkeypatch.setattr(bucket, "_trusted", set())


def records(*offsets: int) -> pa.Table:
    return pa.table({"offset": pa.array(offsets, pa.int64())})


def test_export_lands_on_object_storage(s3: S3) -> None:
    """An export in several runs is read back whole, with its ranges, from a bucket; no probe stays behind."""
    tables = Tables(s3.bucket("exported"))
    log = MemoryLog(pairs=PAIRS)
    for end_offset in (30, 30, 70):
        log.end_offset = end_offset
        sink = DeltaSink(tables, cluster_id="c", run_id="r")
        TaskExecution(MemoryTask([log], cluster_id="c", batch_rows=10), sink, policy=FlushPolicy(rows=20)).run()
    assert sorted(tables.read("state_records")["offset"].to_pylist()) == list(range(70))
    assert pc.sum(tables.read("export_ranges")["records_read"]).as_py() == 70
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    rows = tables.read_files("state_records", [file.path for file in snapshot.files()], columns=["offset"])
    assert rows.num_rows == 70
    assert any(key.endswith(".parquet") for key in s3.keys("exported"))
    assert not [key for key in s3.keys("exported") if "probe" in key]


@pytest.mark.full
def test_maintenance_in_a_bucket(s3: S3) -> None:
    """Files become few, old ones go, and the exporter continues, as in a folder."""
    config = s3.bucket("maintained")
    tables, exporter = Tables(config), Exporter(Tables(config), 20, 3)
    exporter.commit(10)
    before = rows_of(tables)
    maintain(config, MaintenancePolicy(vacuum_after_ms=0))
    assert rows_of(tables).equals(before)
    assert sum(key.endswith(".parquet") and "_delta_log" not in key for key in s3.keys("maintained")) == 2
    exporter.commit(1)
    ensure_accounted(tables)


@pytest.mark.full  # tests/tables/test_repairs.py has it in a folder
def test_damage_in_a_bucket_is_named_and_mended(s3: S3) -> None:
    """As in a folder: the list of files is compared with the log, a commit or file that cannot be read is left out and
    kept beside the others, what is lost of the records is known, and a table can be thrown away."""
    tables, log = Tables(s3.bucket("damaged-bucket")), MemoryLog(pairs=PAIRS)
    for end_offset in (4, 8, 12):
        log.end_offset = end_offset
        sink = DeltaSink(tables, cluster_id="c", run_id="r")
        TaskExecution(MemoryTask([log], cluster_id="c"), sink).run()
    assert find_damage(tables).is_sound
    place, snapshot = tables.place("state_records"), tables.snapshot("state_records")
    assert snapshot is not None
    lost = snapshot.files()[0].path
    offsets = sorted(tables.read_files("state_records", [lost], columns=["offset"])["offset"].to_pylist())
    place.storage().delete_file(lost)
    found = find_damage(tables)
    assert [each.file for each in found.damages] == [lost]
    assert [(each.first_offset, each.last_offset) for each in found.lost or ()] == [(offsets[0], offsets[-1])]
    place.leave_out([lost])
    assert tables.read("state_records").num_rows == 8

    commit = f"_delta_log/{snapshot.version:020d}.json"
    place.stub_commit(commit, "{")
    with pytest.raises(DamagedTables, match=f"table state_records: {commit} is no JSON"):
        tables.read("state_records")
    place.stub_commit(commit, EMPTY_COMMIT)
    assert place.damage() == []
    assert f"tables/state_records/{commit}.damaged" in s3.keys("damaged-bucket")
    tables.place("export_ranges").discard()
    assert not tables.exists("export_ranges")


def test_storage_that_ignores_conditions_is_refused(s3: S3, bucket: TablesConfig) -> None:
    """Where a put succeeds in spite of If-None-Match, no table is made at all."""
    s3.ignores_conditions()
    with pytest.raises(ConfigurationError, match="ignores conditional writes"):
        Tables(bucket).append("state_records", records(1))
    assert s3.keys(bucket.uri.split("/")[2]) == []


@pytest.mark.parametrize(
    ("action", "path", "method", "times"),
    [("status_after", "_acktrail_probe_", "PUT", 1), ("status", "delete", "POST", 9)],
)
def test_a_probe_that_loses_a_response_refuses_no_storage(
    s3: S3, bucket: TablesConfig, action: str, path: str, method: str, times: int
) -> None:
    """The first put whose response is lost meets its own object when it is sent again; an object that cannot be removed
    may stay."""
    s3.proxy.fail(action, path, method=method, times=times, code=500 if method == "PUT" else 403)
    Tables(bucket).append("state_records", records(1))
    assert s3.proxy.hits
    assert Tables(bucket).read("state_records").num_rows == 1


def test_storage_is_probed_once(s3: S3, bucket: TablesConfig) -> None:
    """The second table under a root costs no second probe."""
    tables = Tables(bucket)
    tables.append("state_records", records(1))
    s3.ignores_conditions()
    tables.create("findings")
    assert tables.exists("findings")


@pytest.mark.full
def test_writers_at_once_lose_nothing(s3: S3) -> None:
    """Several writers without positions all land; of several at one position exactly one does."""
    config = s3.bucket("raced")
    Tables(config).create("state_records")
    landed: list[int] = []

    def write(number: int) -> None:
        tables = Tables(config)
        tables.append("state_records", records(number))
        try:
            tables.append("state_records", records(1000), transactions={"a": 1}, expected={"a": None})
        except ConcurrentCommit:
            return
        landed.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(landed) == 1
    assert sorted(Tables(config).read("state_records")["offset"].to_pylist()) == [0, 1, 2, 3, 4, 1000]
