"""Parquet files in a bucket: what the sink suite asks, through a network and a storage that fail, at any number of
files."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from embedded.processes import eventually
from plugins import test_suites
from samples.memory_source import MemoryLog, MemoryTask
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.runtime.task_execution import TaskExecution
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.errors import ConcurrentCommit, OutcomeUnknown, RetryableError
from acktrail.tables.bucket import Bucket
from acktrail_plugins.parquet.parquet_files import BucketFiles, file_name, file_storage
from acktrail_plugins.parquet.parquet_sink import ParquetSink, ParquetSinkTask
from acktrail_plugins.testing import SinkSuite

PART = SourcePartition("p~ü/1")
LOGS = SinkTaskContext(connector="c", run_id="run", cluster_id="memory", reads_logs=True)
ROWS = SinkTaskContext(connector="c", run_id="run")
FILE = r"/t/.*\.parquet"
names = (f"parquet-{number}" for number in itertools.count())


@pytest.fixture
def config(s3: S3) -> TablesConfig:
    """An empty bucket."""
    return s3.bucket(next(names), timeout="1s")


def keys_of(config: TablesConfig) -> dict[str, str]:
    """The sink's configuration."""
    return {"folder": config.uri, **{f"option.{name}": value for name, value in config.options.items()}}


def sink_of(config: TablesConfig) -> ParquetSink:
    return ParquetSink(ParquetSink.config_def.parse(keys_of(config)))


def stored(server: S3, config: TablesConfig, table: str) -> pa.Table | None:
    """All rows of a table, read from the server's own disk; None: no file."""
    folder = server.folder / "data" / config.uri.removeprefix("s3://") / table
    files = sorted(folder.rglob("*.parquet")) if folder.exists() else []
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files]) if files else None


def numbers(server: S3, config: TablesConfig) -> list[int]:
    rows = stored(server, config, "t")
    return [] if rows is None else sorted(rows["a"].to_pylist())


def put(task: ParquetSinkTask, first: int, end: int) -> None:
    rows = pa.table({"a": pa.array(range(first, end), pa.int64())})
    task.put(SourceBatch(source_partition=PART, rows={"t": rows}, position=end))


class TestParquetSinkInABucket(SinkSuite):
    """State records as objects: rows, and ranges that follow them."""

    connector_class = ParquetSink
    examples = 3
    reads_logs = True
    cluster_id = "memory"
    table = "state_records"
    partitions = test_suites.TestDeltaSinkOfLogs.partitions
    position_after = test_suites.TestDeltaSinkOfLogs.position_after
    batch = test_suites.TestDeltaSinkOfLogs.batch
    server: ClassVar[S3]

    @pytest.fixture(autouse=True, scope="class")
    def _server(self, _s3: S3) -> None:
        type(self).server = _s3

    @property
    def bucket(self) -> TablesConfig:
        if not hasattr(self, "_bucket"):
            self._bucket = self.server.bucket(next(names))
        return self._bucket

    def prepare(self) -> None:
        self.__dict__.pop("_bucket", None)

    def config(self) -> Mapping[str, str]:
        return keys_of(self.bucket)

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        rows, partition = stored(self.server, self.bucket, self.table), int(source_partition.rsplit("/", 1)[1])
        if rows is None:
            return []
        return sorted(rows.filter(pc.equal(rows["state_partition"], partition))["offset"].to_pylist())

    def commits(self) -> int:
        return len(list((self.server.folder / "data" / self.bucket.uri.split("/")[2]).rglob("*.parquet")))


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
    assert numbers(s3, config) == list(range(6))


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
    assert numbers(s3, config) == [0, 1, 2]


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
        assert numbers(s3, config) == [0, 1, 2]
        return
    assert eventually(lambda: numbers(s3, config) == [0, 1], within_s=20)
    with pytest.raises(ConcurrentCommit):
        other.flush()
    assert other.position(PART) == 2


KILLED = """
import sys
sys.path[:0] = json_path
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from plugins.test_parquet_bucket import LOGS, MemoryTask, TablesConfig, sink_of, some_logs
task = sink_of(TablesConfig(uri=uri, options=options)).task(LOGS)
TaskExecution(MemoryTask(some_logs(), batch_rows=5), task, policy=FlushPolicy(rows=10)).run()
"""


def some_logs() -> list[MemoryLog]:
    return [MemoryLog(pairs=[(b"\x00\x09", b"x")], partition=number, end_offset=25) for number in range(2)]


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
    task = sink_of(s3.direct(config)).task(LOGS)
    TaskExecution(MemoryTask(some_logs(), batch_rows=5), task).run()
    records, ranges = stored(s3, config, "state_records"), stored(s3, config, "export_ranges")
    assert records is not None
    assert ranges is not None
    found = sorted(zip(records["state_partition"].to_pylist(), records["offset"].to_pylist(), strict=True))
    assert found == [(number, offset) for number in range(2) for offset in range(25)]
    assert pc.sum(ranges["records_read"]).as_py() == records.num_rows


class _Numbered(Bucket):
    """A folder of files with some numbers, and how often it was asked."""

    def __init__(self, held: list[int]) -> None:
        self._names, self.asked = [file_name(number) for number in held], 0

    def page(self, folder: str, after: str) -> list[str]:
        self.asked += 1
        return [name for name in self._names if name > after][:1_000]


@pytest.mark.parametrize("removed", [0, 1, 700, 999])
@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 5_000, 64_321, 131_072])
def test_the_newest_file_is_found_without_a_list_of_all(count: int, removed: int) -> None:
    """At any number of files, also where old ones were removed: few requests."""
    bucket = _Numbered(list(range(1 + removed, count + 1)))
    assert BucketFiles(bucket).newest("t") == (count if count > removed else None)
    assert bucket.asked <= max(2, 2 * max(1, count // 1_000).bit_length() + 4)


def test_the_start_asks_for_the_newest_files_alone(s3: S3, config: TablesConfig) -> None:
    """Of 2,345 files of a source partition the start lists a few pages and reads one."""
    task = sink_of(config).task(ROWS)
    for end in (1, 7):
        put(task, end - 1, end)
        task.flush()
    (folder,) = (s3.folder / "data" / config.uri.removeprefix("s3://") / "t").iterdir()
    for number in range(3, 2_346):  # all of them have the footer of the second one
        os.link(folder / file_name(2), folder / file_name(number))
    s3.proxy.fail("delay", "", method="GET", times=9_999, seconds=0)
    assert sink_of(config).positions("c", []) == {PART: 7}
    assert s3.proxy.hits == 5, "two lists of folders, two pages of names, one footer"
    assert file_storage(config).newest(f"t/{folder.name}") == 2_345
