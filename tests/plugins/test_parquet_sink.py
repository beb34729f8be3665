"""Plain Parquet files have what Delta tables have, in a folder or a bucket: through kills, a network and a storage that
fail, at any number of files; and engines read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from embedded.processes import eventually
from plugins import test_suites
from pyarrow.fs import S3FileSystem
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import REGION, S3

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.source_batches import SourceBatch, SourcePartition, all_dead
from acktrail.connect.task_execution import FlushPolicy, TaskExecution
from acktrail.errors import ConcurrentCommit, DamagedTables, OutcomeUnknown, RetryableError, RowsRefused
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.tables.bucket import Bucket
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_place import table_root
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail.tables.lease import WorkerLease
from acktrail_plugins.parquet.parquet_files import BucketFiles, file_name, file_storage
from acktrail_plugins.parquet.parquet_sink import ParquetSink, ParquetSinkTask

PART = SourcePartition("p~ü/1")
LOGS = SinkTaskContext(connector="c", run_id="run", cluster_id="memory", reads_logs=True)
ROWS = SinkTaskContext(connector="c", run_id="run", dead_letter_table="dead")
FILE = r"/t/.*\.parquet"
BY = [("state_partition", "ascending"), ("offset", "ascending")]


def a_task(root: Path, context: SinkTaskContext = ROWS) -> ParquetSinkTask:
    return ParquetSinkTask(file_storage(TablesConfig(uri=str(root))), context)


def keys_of(config: TablesConfig) -> dict[str, str]:
    """The sink's configuration."""
    return {"folder": config.uri, **{f"option.{name}": value for name, value in config.options.items()}}


def sink_of(config: TablesConfig) -> ParquetSink:
    return ParquetSink(ParquetSink.config_def.parse(keys_of(config)))


def folder_of(server: S3, config: TablesConfig) -> Path:
    """A bucket on its server's own disk."""
    return server.folder / "data" / config.uri.removeprefix("s3://")


def stored(root: Path, table: str) -> pa.Table:
    """All rows of a table, without the source partition."""
    return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted((root / table).rglob("*.parquet"))])


def numbers(root: Path) -> list[int]:
    return sorted(stored(root, "t")["a"].to_pylist()) if any((root / "t").rglob("*.parquet")) else []


def some_logs() -> list[MemoryLog]:
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x09", b"x")]
    return [MemoryLog(pairs=pairs, partition=number, start_offset=7 * number, end_offset=40) for number in range(3)]


def export(task: ParquetSinkTask, logs: list[MemoryLog] | None = None) -> None:
    """What the logs have, in many files."""
    TaskExecution(MemoryTask(logs or some_logs(), batch_rows=5), task, policy=FlushPolicy(rows=10)).run()


def assert_whole(root: Path) -> None:
    """Every offset and every range once."""
    records, ranges = stored(root, "state_records"), stored(root, "export_ranges")
    found = sorted(zip(records["state_partition"].to_pylist(), records["offset"].to_pylist(), strict=True))
    assert found == [(number, offset) for number in range(3) for offset in range(7 * number, 40)]
    assert pc.sum(ranges["records_read"]).as_py() == records.num_rows


def put(task: ParquetSinkTask, first: int, end: int) -> None:
    rows = pa.table({"a": pa.array(range(first, end), pa.int64())})
    task.put(SourceBatch(source_partition=PART, rows={"t": rows}, position=end))


def test_files_and_delta_tables_have_the_same_rows(tmp_path: Path) -> None:
    """The same logs, pruned meanwhile, through both sinks: records and ranges, gaps among them, are equal."""
    logs, later = some_logs(), some_logs()
    later[1].start_offset, later[1].end_offset = 55, 60
    delta = Tables(TablesConfig(uri=str(tmp_path / "delta")))
    for each in (logs, later):
        for sink in (DeltaSink(delta, cluster_id="memory", run_id="run"), a_task(tmp_path / "files", LOGS)):
            TaskExecution(MemoryTask(each, batch_rows=9), sink, policy=FlushPolicy(rows=20)).run()

    for table, order in (("state_records", "offset"), ("export_ranges", "log_end_offset")):
        own = stored(tmp_path / "files", table)
        kept = delta.read(table)
        by = [("state_partition", "ascending"), (order, "ascending")]
        if table == "export_ranges":  # files are by source partition: a flush may cut ranges elsewhere
            gaps = [
                rows.filter(pc.is_valid(rows["gap_first"])).select(["gap_first", "gap_last"]) for rows in (own, kept)
            ]
            assert gaps[0].to_pylist() == gaps[1].to_pylist() == [{"gap_first": 40, "gap_last": 54}]
            assert pc.sum(own["records_read"]) == pc.sum(kept["records_read"])
        else:
            assert own.sort_by(by).to_pylist() == kept.sort_by(by).to_pylist()


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["create", "_sync", "link"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, step: str, nth: int) -> None:
    """The process ends at the nth call of a step, then the export runs again: every offset and range once."""
    child = f"""
import os, sys
sys.path[:0] = {json.dumps(sys.path)}
from pathlib import Path
from acktrail_plugins.parquet import parquet_files as files
from plugins.test_parquet_sink import LOGS, a_task, export
calls = 0
def killing(own):
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == {nth}:
            os._exit(9)
        return own(*arguments, **named)
    return call
owner = {{"create": files.FolderFiles, "_sync": files, "link": files.os}}[{step!r}]
setattr(owner, {step!r}, killing(getattr(owner, {step!r})))
export(a_task(Path({str(tmp_path)!r}), LOGS))
"""
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == 9
    export(a_task(tmp_path, LOGS))
    assert_whole(tmp_path)


def test_rows_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    """Names that leave the folder, a second table, a changed type, rows without a position."""
    sink = a_task(tmp_path / "files")

    def put(table: str, column: list[Any], at: int | None = 1) -> None:
        sink.put(SourceBatch(source_partition=PART, rows={table: pa.table({"a": column})}, position=at))

    put("t", [1])
    for table, column in (("../x", [1]), ("T", [1]), ("u", [1]), ("t", ["x"])):
        with pytest.raises(RowsRefused):
            put(table, column)
    with pytest.raises(RowsRefused, match="doubled"):
        put("t", [1], None)
    sink.flush()
    assert stored(tmp_path / "files", "t").num_rows == 1


def test_dead_letters_follow_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are held until there is a table, and delivered once, also when a crash comes between."""
    sink = a_task(tmp_path)
    bad = SourceBatch(source_partition=PART, rows={"t": pa.table({"a": ["x", "y"]})}, position={"n": 1})
    sink.put(all_dead(bad, "why", "dead"))
    assert not sink.flush().positions
    sink.put(SourceBatch(source_partition=PART, rows={"t": pa.table({"a": [1]})}, position={"n": 2}))
    with monkeypatch.context() as broken:
        broken.setattr(ParquetSinkTask, "_complete", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    assert not (tmp_path / "dead").exists()
    for _ in range(2):
        assert a_task(tmp_path).position(PART) == {"n": 2}
    assert stored(tmp_path, "dead")["reason"].to_pylist() == ["why", "why"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A file without a footer stops the sink before anything is written."""
    sink = a_task(tmp_path)
    put(sink, 0, 1)
    sink.flush()
    (file,) = tmp_path.rglob("*.parquet")
    whole = file.read_bytes()
    schema = whole.index(b"ARROW:schema") + 20
    own = whole[:schema] + b"A" * 60 + whole[schema + 60 :]
    for content in (b"PAR1", b"", b"no Parquet", whole[:-20] + bytes(16) + b"PAR1", own):
        file.write_bytes(content)
        with pytest.raises(DamagedTables, match=file.name):
            a_task(tmp_path).start()


@pytest.fixture
def config(s3: S3) -> TablesConfig:
    """An empty bucket."""
    return s3.bucket(f"parquet-{uuid4().hex}", timeout="1s")


class TestParquetSinkInABucket(test_suites.TestParquetSinkOfLogs):
    """State records as objects: rows, and ranges that follow them."""

    examples = 3
    server: ClassVar[S3]

    @pytest.fixture(autouse=True, scope="class")
    def _server(self, _s3: S3) -> None:
        type(self).server = _s3

    def prepare(self) -> None:
        self.bucket = self.server.bucket(f"parquet-{uuid4().hex}")

    def config(self) -> Mapping[str, str]:
        return keys_of(self.bucket)

    @property
    def files(self) -> Path:
        return folder_of(self.server, self.bucket)


FAULTS: list[tuple[str, int, dict[str, Any], type[Exception] | None]] = [
    ("status", 9, {"code": 500}, RetryableError),
    ("status_after", 9, {"code": 503}, None),
    ("cut_before", 9, {}, OutcomeUnknown),
    ("silence_after", 9, {}, None),
    ("status", 1, {"code": 500}, None),
    ("status", 9, {"code": 503}, RetryableError),
    ("status_after", 1, {"code": 500}, None),
    ("cut_after", 9, {}, None),
]
"""What happens to the request that commits, how often, and the error; None: it lands."""


@pytest.mark.few(4)
@pytest.mark.parametrize(("action", "times", "more", "error"), FAULTS)
def test_a_put_through_a_bad_network_lands_once_or_not_at_all(
    s3: S3, config: TablesConfig, action: str, times: int, more: dict[str, Any], error: type[Exception] | None
) -> None:
    """A lost response is no error where the object says whose it is; else nothing landed, and the next run puts it."""
    task = sink_of(config).task(ROWS)
    put(task, 0, 2)
    task.flush()
    put(task, 2, 4)
    s3.proxy.fail(action, FILE, times=times, **more)
    if error is None:
        assert task.flush().positions == {PART: 4}
    else:
        with pytest.raises(error) as caught:
            task.flush()
        assert type(caught.value) is error
        assert s3.root.secret not in str(caught.value)
    assert s3.proxy.heal() > 0
    assert task.position(PART) == (4 if error is None else 2)
    put(task, 4 if error is None else 2, 6)
    task.flush()
    assert numbers(folder_of(s3, config)) == list(range(6))


def test_where_nothing_can_be_verified_the_outcome_is_unknown(s3: S3, config: TablesConfig) -> None:
    """The put landed, its response got lost, and nothing can be read: neither is claimed, and no row comes twice."""
    task = sink_of(config).task(ROWS)
    put(task, 0, 2)
    blind = {"action": "status", "code": 503, "method": "HEAD", "path": "", "times": 99}
    s3.proxy.fail("cut_after", FILE, times=9, then=[blind])
    with pytest.raises(OutcomeUnknown, match="not known whether t/"):
        task.flush()
    s3.proxy.heal()
    assert task.position(PART) == 2
    put(task, 2, 3)
    task.flush()
    assert numbers(folder_of(s3, config)) == [0, 1, 2]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_put_that_arrives_late_doubles_nothing(s3: S3, config: TablesConfig, is_late: bool) -> None:
    """It was given up and is still under way: it finds the next writer's object there, or is found by that writer."""
    task, other = sink_of(config).task(ROWS), sink_of(s3.direct(config)).task(ROWS)
    put(task, 0, 2)
    s3.proxy.fail("hold_before", FILE)
    with pytest.raises(OutcomeUnknown):
        task.flush()
    put(other, 0, 3)
    if is_late:
        other.flush()
    s3.proxy.heal()
    if is_late:
        assert numbers(folder_of(s3, config)) == [0, 1, 2]
        return
    assert eventually(lambda: numbers(folder_of(s3, config)) == [0, 1], within_s=20)
    with pytest.raises(ConcurrentCommit):
        other.flush()
    assert other.position(PART) == 2


KILLED = """
import sys
sys.path[:0] = json_path
from plugins.test_parquet_sink import LOGS, TablesConfig, export, sink_of
export(sink_of(TablesConfig(uri=uri, options=options)).task(LOGS))
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(("table", "action"), [("state_records", "hold_before"), ("export_ranges", "hold_after")])
def test_a_kill_within_a_put_loses_and_doubles_nothing(s3: S3, config: TablesConfig, table: str, action: str) -> None:
    """The process is killed while the second file of a table is on its way, or its response: every offset and range
    is there once in the end."""
    config = TablesConfig(uri=config.uri, options={**config.options, "timeout": "30s"})
    s3.proxy.fail(action, rf"/{table}/.*0002\.parquet")
    given = f"json_path, uri, options = {sys.path!r}, {config.uri!r}, {dict(config.options)!r}\n"
    with subprocess.Popen([sys.executable, "-c", given + KILLED]) as child:
        assert eventually(lambda: s3.proxy.hits > 0, within_s=60)
        child.kill()
    s3.proxy.heal()
    export(sink_of(s3.direct(config)).task(LOGS))
    assert_whole(folder_of(s3, config))


class _Numbered(Bucket):
    """A folder of files with some numbers, and how often it was asked."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(table_root(TablesConfig(uri="s3://b")))
        self._names, self.asked = names, 0

    def names(self, folder: str, after: str = "", most: int | None = None) -> list[str]:
        self.asked += 1
        return [name for name in self._names if name > after][:most]


def test_the_newest_file_is_found_without_a_list_of_all() -> None:
    """At any number of files, also where old ones were removed: few requests."""
    for count in (0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 5_000, 64_321, 131_072):
        names = [file_name(number) for number in range(1, count + 1)]
        for removed in (0, 1, 700, 999):
            bucket = _Numbered(names[removed:])
            assert BucketFiles(bucket).newest("t") == (count if count > removed else None)
            assert bucket.asked <= max(2, 2 * max(1, count // 1_000).bit_length() + 4)


def test_the_start_asks_for_the_newest_files_alone(s3: S3, config: TablesConfig) -> None:
    """Of 2,345 files of a source partition the start lists a few pages and reads one."""
    task = sink_of(config).task(ROWS)
    for end in (1, 7):
        put(task, end - 1, end)
        task.flush()
    (folder,) = (folder_of(s3, config) / "t").iterdir()
    for number in range(3, 2_346):  # all of them have the footer of the second one
        os.link(folder / file_name(2), folder / file_name(number))
    s3.proxy.fail("delay", "", method="GET", times=9_999, seconds=0)
    assert sink_of(config).positions("c", []) == {PART: 7}
    assert s3.proxy.hits == 5, "two lists of folders, two pages of names, one footer"
    assert file_storage(config).newest(f"t/{folder.name}") == 2_345


def write(config: TablesConfig) -> list[dict[str, Any]]:
    """Three logs in many files; the rows that must be there."""
    assert WorkerLease(config, "c", owner="w").acquire()
    export(ParquetSinkTask(file_storage(config), LOGS))
    rows = pa.concat_tables([decode_records(log.raw(log.start_offset, log.end_offset)) for log in some_logs()])
    return [{"cluster_id": "memory", "run_id": "run", **row} for row in rows.to_pylist()]


def test_arrow_reads_a_folder_in_a_bucket(s3: S3) -> None:
    """By Arrow's own client for S3: the same rows from objects."""
    config = s3.bucket("read-back")
    expected = write(config)
    keys = {"access_key": s3.root.access, "secret_key": s3.root.secret}
    host = s3.direct_address.removeprefix("http://")
    there = S3FileSystem(endpoint_override=host, scheme="http", region=REGION, **keys)
    folder = config.uri.removeprefix("s3://") + "/state_records"
    found = ds.dataset(folder, filesystem=there, partitioning="hive").to_table().drop_columns(["source_partition"])
    assert found.sort_by(BY).to_pylist() == expected
