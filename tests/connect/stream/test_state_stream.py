"""What the stream of Spark leaves in the tables is what an export leaves: records, ranges, positions, verdicts; also
where several processes write and one commits."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from drivers.command_line import run
from drivers.own_process import printed
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from samples.memory_source import MemoryLog
from servers.s3_server import S3
from servers.workload import Workload
from tables.exporter_process import pairs

from acktrail.config import KafkaConfig, TablesConfig, environment
from acktrail.errors import ConcurrentCommit, ForeignCluster, LeaseLost, LogChanged, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.log_positions import PRUNED, LogSpan, state_source_partition
from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for
from acktrail.tables.delta.delta_log_writer import WRITTEN_FILES
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.export_ranges import TableLogs
from acktrail_connect.contract import LeaseTerms
from acktrail_connect.export.export_run import ExportRun, ExportSummary, observe
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sinks.writer_lease import sink_lease
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.state_source import state_rows
from acktrail_connect.stream import state_stream
from acktrail_connect.stream.state_stream import (
    ENDS,
    DataFileSink,
    StateStreamReader,
    StreamPlan,
    TableStream,
    foreseen,
    limited,
    write_share,
    written_records,
)
from acktrail_jobs.api import reconcile

pytestmark = pytest.mark.usefixtures("spark")

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[3]


@pytest.fixture
def group(kafka: KafkaConfig) -> str:
    """A group with a topic of its name, at work."""
    name = f"stream-{uuid4().hex[:8]}"
    Workload(kafka).create_topic(name)
    work(kafka, name, 20)
    return name


def work(kafka: KafkaConfig, group: str, count: int) -> None:
    workload = Workload(kafka)
    workload.produce(group, count)
    workload.acknowledge(group, group, count)


def tables_in(folder: Path) -> TablesConfig:
    return TablesConfig(uri=str(folder))


def stream(
    spark: SparkSession, kafka: KafkaConfig, tables: TablesConfig, checkpoint: Path | None = None, **plan: int
) -> ExportSummary:
    """One run of ``acktrail run stream`` in this process."""
    run = ExportRun(kafka, tables)
    made = TableStream(
        run=run,
        plan=StreamPlan(kafka=kafka, tables=tables, run_id=run.summary().run_id, **plan),
        checkpoint=str(checkpoint or f"{tables.uri}/_acktrail/stream"),
        lease=sink_lease(tables, LeaseTerms(connector="", owner="s", ttl_s=30, reads_logs=True)),
        stop=Event(),
    )
    with run.open():
        run.sample("before", reads_state=False)
        made.drain(lambda: spark)
        run.sample("after", reads_state=False)
    made.lease.release()
    return run.checked_summary()


def records(tables: TablesConfig) -> list[dict[str, Any]]:
    rows = Tables(tables).read("state_records").drop_columns(["run_id"])
    return rows.sort_by([("state_partition", "ascending"), ("offset", "ascending")]).to_pylist()


def last_records(kafka: KafkaConfig, tables: TablesConfig) -> list[int | None]:
    """What the tables keep of the last record of each state partition, to compare it with the log."""
    topic, logs = StreamPlan(kafka=kafka, tables=tables, run_id="r").backlog()
    names = {state_source_partition(topic["cluster_id"], topic["topic_id"], number): number for number in logs}
    stored = TableLogs(Tables(tables), Tables(tables).snapshot("state_records"))
    found = [stored.stored_log(name, number).last_fingerprint for name, number in names.items()]
    assert any(found)
    return found


def covered(tables: TablesConfig) -> dict[int, list[tuple[Any, ...]]]:
    """Ranges of each state partition, in order."""
    names = ("first_offset", "last_offset", "gap_first", "gap_last", "gap_reason", "records_read", "records_decoded")
    rows = Tables(tables).read("export_ranges").sort_by([(name, "ascending") for name in names[:1]]).to_pylist()
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row["state_partition"], []).append(tuple(row[name] for name in names))
    return found


def test_stream_and_export_continue_each_other(
    spark: SparkSession, kafka: KafkaConfig, group: str, tmp_path: Path
) -> None:
    """Streamed, exported, streamed: record by record the rows of one export, each partition covered without a hole,
    and verdict by verdict the reconciliation of the export. While another one holds the lease, that is named and
    nothing is read. Where nothing is new no Spark is asked for, and no records are committed."""
    mixed, whole = tables_in(tmp_path / "mixed"), tables_in(tmp_path / "whole")
    held = sink_lease(mixed, LeaseTerms(connector="any", owner="host:worker.toml", ttl_s=30, reads_logs=True))
    assert held.acquire()
    with pytest.raises(LeaseLost, match=r"host:worker.toml exports into these tables"):
        stream(None, kafka, mixed)  # type: ignore[arg-type]  # it ends before Spark is asked
    assert not Tables(mixed).exists("state_records")
    held.release()
    first = stream(spark, kafka, mixed)
    assert first.records_read == len(records(mixed)) > 0
    work(kafka, group, 15)
    observe(kafka, mixed)
    work(kafka, group, 10)
    last = stream(spark, kafka, mixed, most=9)
    observed = observe(kafka, whole)

    assert records(mixed) == records(whole)
    assert last_records(kafka, mixed) == last_records(kafka, whole)
    assert last.records_read == last.records_decoded > 3
    assert last.rows["state_records"] == last.records_read
    for number, ranges in covered(mixed).items():
        (only,) = covered(whole)[number]
        assert (ranges[0][0], ranges[-1][1]) == only[:2]
        assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
        assert [sum(each[5] for each in ranges), sum(each[6] for each in ranges)] == list(only[5:])
    reconcile(mixed, last.run_id)
    reconcile(whole, observed.run_id)
    assert verdicts(mixed, last.run_id) == verdicts(whole, observed.run_id)
    assert (group, "match") in {(name, verdict) for name, *_, verdict in verdicts(mixed, last.run_id)}

    version = Tables(mixed).snapshot("state_records").version  # type: ignore[union-attr]  # made above
    again = stream(None, kafka, mixed)  # type: ignore[arg-type]  # it ends before Spark is asked
    assert (again.records_read, again.status) == (0, "complete")
    assert Tables(mixed).snapshot("state_records").version == version  # type: ignore[union-attr]  # made above


def verdicts(tables: TablesConfig, run_id: str) -> set[tuple[Any, ...]]:
    names = ("group_id", "topic_id", "partition", "durable_start_offset", "durable_lag", "verdict")
    return {tuple(row[name] for name in names) for row in Tables(tables).rows("reconciliations", {"run_id": run_id})}


@pytest.mark.full
def test_a_bucket_gets_what_a_folder_gets(
    spark: SparkSession, kafka: KafkaConfig, group: str, s3: S3, tmp_path: Path
) -> None:
    """Executors write there by themselves, a second run continues; also where the checkpoint is another one's, whose
    micro-batches those tables do not have."""
    exported, checkpoint = tables_in(tmp_path / "exported"), tmp_path / "checkpoint"
    tables, lost = s3.bucket("streamed"), s3.bucket("lost")
    first = stream(spark, kafka, tables, checkpoint)
    work(kafka, group, 10)
    last = stream(spark, kafka, tables, checkpoint)
    stream(spark, kafka, lost, checkpoint)
    observe(kafka, exported)
    assert records(tables) == records(lost) == records(exported)
    assert min(first.records_read, last.records_read) > 0
    assert {number: ranges[-1][1] for number, ranges in covered(tables).items()} == {
        number: ranges[-1][1] for number, ranges in covered(exported).items()
    }


def test_a_task_reads_up_to_its_end_and_commits_nothing(kafka: KafkaConfig, group: str, tmp_path: Path) -> None:
    """What one task of a micro-batch does, done twice: the same spans, files that are no part of any table."""
    plan = StreamPlan(kafka=kafka, tables=tables_in(tmp_path), run_id="r")
    plan.prepare()
    _, logs = plan.backlog()
    number, (begin, end) = max(logs.items(), key=lambda each: each[1][1] - each[1][0])
    ends = pa.RecordBatch.from_pydict({"state_partition": [number], "end_offset": [end - 2]}, schema=ENDS)
    spans = []
    for _ in range(2):
        found = [row for batch in write_share(plan, [ends]) for row in batch.to_pylist()]
        spans.append([row for row in found if row["path"] is None])
        assert [row["size"] > 0 for row in found if row["path"] is not None] == [True]
    assert spans[0] == spans[1]
    assert (spans[0][0]["first_offset"], spans[0][-1]["position"]) == (begin, end - 2)
    assert sum(row["records"] for row in spans[0]) == end - 2 - begin
    assert Tables(plan.tables).read("state_records").num_rows == 0


def test_what_was_pruned_is_left_to_do(kafka: KafkaConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the log has nothing else: the tables lack the gap."""
    topic = f"stream-{uuid4().hex}"
    monkeypatch.setattr(state_stream, "STATE_TOPIC", topic)
    plan = StreamPlan(kafka=kafka, tables=tables_in(tmp_path), run_id="r")
    assert plan.backlog()[1] == {}
    workload = Workload(kafka)
    workload.create_topic(topic, 2)
    workload.produce(topic, 5)
    for future in workload.admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result()
    assert plan.backlog()[1] == {0: (0, 5), 1: (0, 0)}


def test_tables_of_another_cluster_are_refused(kafka: KafkaConfig, group: str, tmp_path: Path) -> None:
    """Or of another incarnation of the state topic: before a record is read, and before Spark is started."""
    foreign, older = tables_in(tmp_path / "foreign"), tables_in(tmp_path / "older")
    Tables(foreign).create("state_records", properties={"cluster_id": "another"})
    with pytest.raises(ForeignCluster, match="belong to cluster another"):
        stream(None, kafka, foreign)  # type: ignore[arg-type]  # it ends before Spark is asked
    with ShareGroupAdmin(kafka) as admin:
        create_records_for(Tables(older), admin.cluster_id, "AAAAAAAAAAAAAAAAAAAAAA", OWN_DIALECT)
    with pytest.raises(ForeignCluster, match="hold the state topic with id AAAAAAAAAAAAAAAAAAAAAA"):
        stream(None, kafka, older)  # type: ignore[arg-type]  # it ends before Spark is asked


def test_an_error_of_another_process_keeps_its_class(spark: SparkSession) -> None:
    """By the last line of its traceback, which Spark hands over as text; what is not acktrail's stays Spark's."""
    text = "Traceback (most recent call last):\n  File ...\nacktrail.errors.LogChanged: the leader changed\n\nat org..."
    found = foreseen(RuntimeError(text))
    assert isinstance(found, LogChanged)
    assert found.message == str(found) == "the leader changed"
    assert foreseen(RuntimeError("ValueError: no")) is None

    def unreachable(_: Any) -> Any:
        raise Unreachable("broker:9")

    with pytest.raises(Exception, match="Unreachable") as raised:
        spark.range(1).mapInArrow(unreachable, "id long").collect()
    assert isinstance(foreseen(raised.value), Unreachable)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(1, 60))
def test_a_micro_batch_has_a_limit(logs: list[tuple[int, int]], most: int) -> None:
    """As many offsets as the limit and the logs allow, and no log is read beyond its end."""
    begins = {number: begin for number, (begin, _) in enumerate(logs)}
    ends = {number: begin + backlog for number, (begin, backlog) in enumerate(logs)}
    taken = {number: end - begins[number] for number, end in limited(begins, ends, most).items()}
    assert sum(taken.values()) == min(most, sum(backlog for _, backlog in logs))
    assert all(0 <= taken[number] <= backlog for number, (_, backlog) in enumerate(logs))


def test_tasks_share_partitions(kafka: KafkaConfig, tmp_path: Path) -> None:
    """Every partition is in one task; few records are one task's, and no topic is a task without work."""
    reader = StateStreamReader(StreamPlan(kafka=kafka, tables=tables_in(tmp_path), run_id="r", tasks=4))
    ends = {str(number): 100_000 * number for number in range(8)}
    tasks = reader.partitions({}, {"partitions": ends})
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert {str(row["state_partition"]): row["end_offset"] for row in rows} == ends
    assert len(tasks) == 4
    assert len(reader.partitions({}, {"partitions": {"0": 9, "1": 9}})) == 1
    (idle,) = reader.partitions({}, {"partitions": {}})
    assert [batch.num_rows for batch in reader.read(idle)] == [0]


@pytest.mark.full
@pytest.mark.parametrize("place", ["local-cluster", "spark-submit"])
def test_executors_of_a_cluster_write_the_tables(place: str, kafka: KafkaConfig, group: str, tmp_path: Path) -> None:
    """Executors as processes of their own, a driver that ``spark-submit`` started: the command leaves what an export
    leaves, a task a share of the partitions, and stdout has the summary alone."""
    streamed, exported = tables_in(tmp_path / "streamed"), tables_in(tmp_path / "exported")
    place_of = {
        "local-cluster": [BIN / "acktrail", "run", "stream", "--master", "local-cluster[2,1,1024]"],
        "spark-submit": [BIN / "spark-submit", "--master", "local[2]", ROOT / "spark_jobs/submit.py", "run", "stream"],
    }
    command = [*place_of[place], "--bootstrap-server", kafka.bootstrap_servers, "--tables", streamed.uri, "--json"]
    surroundings = environment(PYSPARK_PYTHON=sys.executable)
    summary = json.loads(printed(*command, env=surroundings, cwd="/", timeout=400))
    observe(kafka, exported)
    assert records(streamed) == records(exported)
    assert (summary["status"], summary["records_read"]) == ("complete", len(records(streamed)))
    assert summary["rows"]["state_records"] == summary["records_read"]


def test_what_cannot_stream_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No Spark, a Connect server (which nobody asks), no broker, no place for a checkpoint: the class of the error is
    in the exit code."""
    there = ("run", "stream", "--bootstrap-server", "127.0.0.1:1", "--tables")
    assert "acktrail run export" in run(capsys, *there, tmp_path, "--master", "in-process").complaint(2)
    connected = run(capsys, *there, tmp_path, "--master", "sc://localhost:1").complaint(2)
    assert "a stream needs a driver of its own" in connected
    assert "--checkpoint" in run(capsys, *there, "s3://bucket/tables").complaint(2)
    assert "no Kafka broker answered at 127.0.0.1:1" in run(capsys, *there, tmp_path).complaint(4)


TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
LOGS = 4


def sink_of(folder: Path) -> DeltaSink:
    return DeltaSink(Tables(TablesConfig(uri=str(folder))), cluster_id="c1", run_id="r")


def make(folder: Path) -> None:
    create_records_for(Tables(TablesConfig(uri=str(folder))), "c1", TOPIC, OWN_DIALECT)


def batches_of(dice: random.Random, number: int, first: int, end: int) -> Iterator[SourceBatch]:
    """Consecutive batches of a log from `first` to before `end`, some with a gap in place of records."""
    log = MemoryLog(pairs=pairs(), partition=number)
    while first < end:
        until = min(end, first + dice.randint(1, 40))
        is_gap = dice.random() < 0.2
        rows = state_rows(log.raw(first, first if is_gap else until), "c1", "r")
        quarantined = sum(status != "decoded" for status in rows["decode_status"].to_pylist())
        counts = {"records": rows.num_rows, "quarantined": quarantined, "leader_epoch": dice.randint(0, 3)}
        read: dict[str, Any] = {"first_offset": first, "last_offset": until - 1}
        lost = {"gap_first": first, "gap_last": until - 1, "gap_reason": PRUNED}
        span = LogSpan(topic_id=TOPIC, partition=number, **counts, **(lost if is_gap else read))
        name = state_source_partition("c1", TOPIC, number)
        yield SourceBatch(source_partition=name, rows={"state_records": rows}, position=until, span=span)
        first = until


def contents(folder: Path) -> dict[str, Any]:
    tables = Tables(TablesConfig(uri=str(folder)))
    records = tables.snapshot("state_records")
    names = [state_source_partition("c1", TOPIC, number) for number in range(LOGS)]
    ranges = tables.read("export_ranges").drop_columns(["exported_at"]).to_pylist()
    return {
        "records": sorted(tables.read("state_records").to_pylist(), key=str),
        "ranges": sorted(ranges, key=str),
        "positions": [records.transaction_version(each) for each in names] if records else [],
        "epochs": [records.transaction_version(f"{each}/epoch") for each in names] if records else [],
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_many_writers_and_one_commit_are_one_sink(seed: int, tmp_path: Path) -> None:
    """Rows, ranges, positions and epochs, commit by commit, with writers that share the logs out in any way, files that
    were written and never committed, and commits of a sink alone in between."""
    dice = random.Random(seed)
    make(tmp_path / "many")
    one, many = sink_of(tmp_path / "one"), sink_of(tmp_path / "many")
    at = dict.fromkeys(range(LOGS), 0)
    for commit in range(4):
        ends = {number: begin + dice.choice((0, 1, 150)) for number, begin in at.items()}
        given = {number: list(batches_of(dice, number, at[number], end)) for number, end in ends.items()}
        for batch in (each for own in given.values() for each in own):
            one.put(batch)
        one.flush()
        if dice.random() < 0.3:
            many = sink_of(tmp_path / "many")  # another process goes on
            for batch in (each for own in given.values() for each in own):
                many.put(batch)
        else:
            owners = {number: dice.randrange(3) for number in given}
            for _ in range(dice.randint(1, 2)):  # a first attempt may be lost
                written = pa.concat_tables(
                    by_one(dice, tmp_path / "many", [each for n in given if owners[n] == k for each in given[n]])
                    for k in range(3)
                )
            many.put_files(*written_records(written, "c1"), {"stream/q": commit})
        many.flush()
        assert contents(tmp_path / "many") == contents(tmp_path / "one"), (seed, commit)
        at = ends


def by_one(dice: random.Random, folder: Path, batches: list[SourceBatch]) -> pa.Table:
    sink = DataFileSink(Tables(TablesConfig(uri=str(folder))))
    for batch in batches:
        before = sink.position(batch.source_partition)
        assert before is None or (isinstance(batch.position, int) and before < batch.position)
        sink.put(batch)
        if dice.random() < 0.3:
            sink.flush()
    sink.flush()
    assert sink.pending_rows == 0
    return sink.written


def test_what_was_written_is_committed_once(tmp_path: Path) -> None:
    """The same files by a second driver, whose positions are those of before, are refused; with their number under the
    query's id in the same commit."""
    make(tmp_path)
    batches = list(batches_of(random.Random(1), 0, 0, 100))
    written = by_one(random.Random(1), tmp_path, batches)
    drivers = [sink_of(tmp_path) for _ in range(2)]
    for driver in drivers:
        driver.put_files(*written_records(written, "c1"), {"stream/q": 7})
    drivers[0].flush()
    before = contents(tmp_path)
    with pytest.raises(ConcurrentCommit):
        drivers[1].flush()
    assert contents(tmp_path) == before
    assert Tables(TablesConfig(uri=str(tmp_path))).transaction_version("state_records", "stream/q") == 7


def test_files_without_their_spans_are_refused(tmp_path: Path) -> None:
    """Counts add up, or nothing is committed: a file too few, rows of another kind in the same commit."""
    make(tmp_path)
    batches = list(batches_of(random.Random(1), 0, 0, 100))
    spans, files = written_records(by_one(random.Random(1), tmp_path, batches), "c1")
    with pytest.raises(ValueError, match="data files have 0 rows, but their spans have"):
        sink_of(tmp_path).put_files(spans, WRITTEN_FILES.empty_table(), {})
    mixed = sink_of(tmp_path)
    for batch in batches_of(random.Random(2), 1, 0, 100):
        mixed.put(batch)
    with pytest.raises(ValueError, match="data files have"):
        mixed.put_files(spans, files, {})
    assert not Tables(TablesConfig(uri=str(tmp_path))).exists("export_ranges")
