"""State logs that were written on purpose: a log that Kafka lost is never mixed into the old one, tables that lost
something are repaired from it, and holes, transactions, damage and another incarnation are read as what they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from drivers.bounded_reading import drain
from drivers.command_line import run
from drivers.dag_observation import observe_by_task
from jobs.replaying import replayed_again, replayed_here
from jobs.world import batch, key_of, snapshot
from servers.real_broker import releases
from servers.workload import Workload, until
from state_topics.filled_topic import fill, read_all
from state_topics.lost_logs import (
    PARTITIONS,
    back_up,
    contents_in_kafka,
    contents_in_tables,
    export_state,
    lose,
    renew,
    restore,
    write,
)
from state_topics.stream_here import stream_here

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import DamagedTables, ForeignCluster
from acktrail.format.wire.state_record import encode
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.model.log_positions import SourcePartition
from acktrail.model.share_partition import STATE_TOPIC, state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.export_ranges import StoredRecords, TableLogs
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.export.export_run import export, observe
from acktrail_connect.export.repair_run import preview, repair
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.state_source import StateTask
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.worker import Worker
from acktrail_embedded import EmbeddedBroker
from acktrail_jobs.api import build_history, reconcile, verify

pytestmark = pytest.mark.broker

Rows = list[dict[str, object]]


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1"))
def losing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker whose state topic only this module writes; it keeps its folder over restarts."""
    with EmbeddedBroker(request.param, folder=tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def tables(losing: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> TablesConfig:
    """Tables that hold 100 records of each of three partitions, which Kafka has as well."""
    config = TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))
    renew(Workload(losing.config()))
    write(losing, "old", {0: 100, 1: 100, 2: 100})
    export_state(losing, config)
    return config


def rows(tables: TablesConfig, name: str, partition: int) -> Rows:
    found: Rows = [row for row in Tables(tables).read(name).to_pylist() if row["state_partition"] == partition]
    return sorted(found, key=lambda row: (row.get("offset") or 0, row.get("gap_first") or row.get("first_offset") or 0))


def test_a_replaced_log_becomes_a_new_incarnation_behind_a_break(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """Partition 0 grew past the tables' position, partition 1 is shorter, partition 2 is the same log after the
    restart. Every record of the new logs is stored once, behind a break, and says with `offset_shift` where Kafka has
    it; what was stored before stays."""
    before = {partition: rows(tables, "state_records", partition) for partition in range(3)}
    lose(losing, 0, 1)
    write(losing, "new", {0: 150, 1: 30, 2: 10})
    summary = export_state(losing, tables)
    assert summary.records_read == 150 + 30 + 10
    in_kafka = read_all(losing)
    for partition, count in ((0, 150), (1, 30)):
        stored = rows(tables, "state_records", partition)
        assert stored[:100] == before[partition]
        assert [row["offset"] for row in stored[100:]] == list(range(101, 101 + count))
        shift = 101
        expected = [(r.offset + shift, r.timestamp_ms, r.value) for r in in_kafka if r.state_partition == partition]
        assert [(row["offset"], row["timestamp_ms"], row["value"]) for row in stored[100:]] == expected
        breaks = [row for row in rows(tables, "export_ranges", partition) if row["gap_reason"] == "log_replaced"]
        assert [(row["gap_first"], row["gap_last"], row["offset_shift"]) for row in breaks] == [(100, 100, shift)]
    assert [row["offset"] for row in rows(tables, "state_records", 2)] == list(range(110))
    assert not [row for row in rows(tables, "export_ranges", 2) if row["gap_first"] is not None]
    assert [(gap.state_partition, gap.reason) for gap in summary.gaps] == [(0, "log_replaced"), (1, "log_replaced")]
    assert export_state(losing, tables).records_read == 0, "the next one finds the same log"
    assert export_state(losing, tables).commits == 0, "and remembers that it looked"


def test_the_lost_commit_of_a_replacement_is_exported_again(
    losing: EmbeddedBroker, tables: TablesConfig, tmp_path: Path
) -> None:
    """Its records come out of the new log, and the next export takes that for the same one, although the commit had
    noted that the log is another one."""
    shutil.copytree(tables.uri, tmp_path / "tables")
    damaged = TablesConfig(uri=str(tmp_path / "tables"))
    log = Path(damaged.uri, "state_records", "_delta_log")
    noted = [file for file in sorted(log.glob("*.json")) if "/shift" in file.read_text()]
    noted[0].write_text("{")
    done = repair(losing.config(), damaged, run_id="repair")
    assert (sum(each.records for each in done.available or ()), done.gone) == (190, ())
    for partition in range(3):
        found, whole = (
            [(row["offset"], row["value"]) for row in rows(each, "state_records", partition)]
            for each in (damaged, tables)
        )
        assert found == whole
    assert export_state(losing, damaged).records_read == 0


class _Forgetful(TableLogs):
    """Has not seen that logs were replaced."""

    def stored_log(self, source_partition: SourcePartition, partition: int) -> StoredRecords:
        stored = super().stored_log(source_partition, partition)
        stored.offset_shift, stored.last_fingerprint = 0, None
        return stored


def test_a_replaced_log_that_was_stored_twice_is_mended(
    losing: EmbeddedBroker, tables: TablesConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sign is two breaks of one run in one state partition, with the same records behind both: acktrail itself left
    it once. The repair keeps one break and the second copy; other records stay, and later ones are stored once."""
    shutil.copytree(tables.uri, tmp_path / "tables")
    doubled = TablesConfig(uri=str(tmp_path / "tables"))
    store, whole = Tables(doubled), contents_in_tables(tables)
    (run_id,) = {row["run_id"] for row in store.rows("export_ranges", {"gap_reason": "log_replaced"})}
    sink = DeltaSink(store, cluster_id=export_state(losing, doubled).cluster_id, run_id=run_id)
    stored = _Forgetful(store, store.snapshot("state_records"))
    context = SourceTaskContext(run_id=run_id, position=sink.position, stored=stored)
    for each in drain(StateTask(losing.config(), partitions=(0, 1)), context):
        sink.put(each)
    sink.flush()
    assert sum((contents_in_tables(doubled) - whole).values()) == 150 + 30

    arguments = ("tables", "repair", "--bootstrap-server", losing.bootstrap_servers, "--tables", doubled.uri)
    said = run(capsys, *arguments)
    assert said.code == 3
    assert "partition 0: 150 records of a replaced log are stored twice, at offset 101 and again at 252" in said.stdout
    assert run(capsys, *arguments, "--execute").code == 0
    assert contents_in_tables(doubled) == whole
    assert preview(losing.config, doubled).report.is_sound
    for number in (0, 1):
        (row,) = (each for each in rows(doubled, "export_ranges", number) if each["gap_reason"] == "log_replaced")
        assert row["gap_first"] == 100
    assert export_state(losing, doubled).records_read == 0
    assert repair(losing.config(), doubled, run_id="again").report.is_sound


def test_a_log_lost_twice_has_two_breaks(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """A log that is empty now is a break as well, and shifts add up. A restart without a loss is none."""
    end = 1 + int(str(rows(tables, "state_records", 1)[-1]["offset"]))
    lose(losing, 1)
    assert [gap.reason for gap in export_state(losing, tables).gaps] == ["log_replaced"]
    write(losing, "third", {1: 7})
    assert export_state(losing, tables).records_read == 7
    stored = rows(tables, "state_records", 1)
    assert [row["offset"] for row in stored[-7:]] == [*range(end + 1, end + 8)]
    assert stored[-1]["value"] == b"third 6"
    breaks = [row for row in rows(tables, "export_ranges", 1) if row["gap_reason"] == "log_replaced"]
    assert [(row["gap_first"], row["offset_shift"]) for row in breaks] == [(100, 101), (end, end + 1)]


def test_a_state_topic_that_is_gone_or_recreated_is_refused(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """Tables of a state topic that the cluster no longer has: exit code 3, also when the new one is empty."""
    workload = Workload(losing.config())
    workload.delete_topic(STATE_TOPIC)
    with pytest.raises(ForeignCluster, match="no state topic now"):
        export_state(losing, tables)
    renew(workload)
    with pytest.raises(ForeignCluster, match="has id"):
        export_state(losing, tables)


WAYS = ("run export", "state only", "a worker", "a stream", "a DAG task")


def test_every_record_of_a_replaced_log_is_stored_once(losing: EmbeddedBroker, tmp_path: Path) -> None:
    """By contents: key, value and time. The cluster is restored from an older copy, twice, and repeats leader epochs.
    First its logs end exactly where the tables do. Then one ends behind them, one is deleted, and one cut to half.
    Every record that was in Kafka at an export is in the tables once, and each log that is another one has one break.
    The worker is down meanwhile."""
    renew(Workload(losing.config()))
    stored = {way: TablesConfig(uri=str(tmp_path / way)) for way in WAYS}
    source = {"connector.class": "ShareGroupStateSource", "kafka.bootstrap.servers": losing.bootstrap_servers}
    seen = contents_in_kafka(losing)

    def check(breaks: int) -> None:
        nonlocal seen
        seen |= contents_in_kafka(losing)
        observe(losing.config(), stored["run export"])
        export_state(losing, stored["state only"])
        stream_here(losing.config(), stored["a stream"])
        observe_by_task(losing.config(), stored["a DAG task"])
        worker, target = Worker(ConfigStore()), stored["a worker"]
        worker.create("state", {**source, "sink.tables": target.uri, "flush.interval.ms": "100", "linger.ms": "10"})
        until(lambda: contents_in_tables(target) >= seen, what="all records by a worker")
        worker.stop()
        for way, tables in stored.items():
            assert contents_in_tables(tables) == seen, way
            ranges = Tables(tables).rows("export_ranges", {"gap_reason": "log_replaced"})
            assert len(ranges) == breaks, (way, ranges)

    write(losing, "old", {0: 100, 1: 100, 2: 100})
    check(0)
    back_up(losing, tmp_path / "copy")
    write(losing, "gone", {0: 50, 1: 20, 2: 60})
    check(0)
    restore(losing, tmp_path / "copy")
    write(losing, "restored", {0: 50, 1: 20, 2: 60})
    check(3)
    restore(losing, tmp_path / "copy", lost=(0,), halved=(1,))
    write(losing, "again", {0: 600, 1: 30, 2: 70})
    check(6)
    assert all(preview(losing.config, tables).report.is_sound for tables in stored.values())


GROUPS = 12
RUNS = ("r1", "r2", "r3")


def _write_states(broker: EmbeddedBroker, number: int) -> None:
    """One snapshot more of every group: that `number` records were acknowledged."""
    states = [snapshot(key_of(f"g{index}"), 0, (batch(0, number),)) for index in range(GROUPS)]
    fill(broker, [(state_partition_of(state.key, PARTITIONS), *encode(state)) for state in states])


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Three observations of a state topic without writers, and what they left: the memory is that of the
    third. `tables` is never changed."""

    broker: EmbeddedBroker
    kafka: KafkaConfig
    tables: TablesConfig

    def copy(self, folder: Path) -> Tables:
        """The tables, to be damaged."""
        shutil.copytree(self.tables.uri, folder / "tables")
        return Tables(TablesConfig(uri=str(folder / "tables")))


@pytest.fixture(scope="module")
def exported(losing: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    renew(Workload(losing.config()))
    tables = TablesConfig(uri=str(tmp_path_factory.mktemp("exported") / "tables"))
    for number, run_id in enumerate(RUNS):
        _write_states(losing, number)
        observe(losing.config(), tables, run_id=run_id)
        replayed_here(Tables(tables), run_id)
    return Exported(broker=losing, kafka=losing.config(), tables=tables)


def _log(tables: Tables, table: str = "state_records") -> list[Path]:
    """The commits of a table, oldest first."""
    return sorted(Path(tables.config.uri, table, "_delta_log").glob("*.json"))


def _data(tables: Tables, table: str = "state_records") -> list[Path]:
    """The data files of a table, oldest first."""
    return sorted(Path(tables.config.uri, table).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def _records(tables: Tables) -> list[tuple[int, int, bytes, bytes]]:
    rows = tables.read("state_records", columns=["state_partition", "offset", "key", "value"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


LOSSES: dict[str, Callable[[Tables], object]] = {
    "newest commit": lambda tables: _log(tables)[-1].unlink(),
    "newest commit emptied": lambda tables: _log(tables)[-1].write_bytes(b""),
    "newest commit cut off": lambda tables: _log(tables)[-1].write_text('{"add":'),
    "two newest commits": lambda tables: [file.unlink() for file in _log(tables)[-2:]],
    "a commit in the middle": lambda tables: _log(tables)[-2].unlink(),
    "the oldest data file": lambda tables: _data(tables)[0].unlink(),
    "the newest data file cut off": lambda tables: _data(tables)[-1].write_bytes(_data(tables)[-1].read_bytes()[:99]),
    "the whole table": lambda tables: shutil.rmtree(Path(tables.config.uri, "state_records")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_refused_and_mended(exported: Exported, tmp_path: Path, loss: str) -> None:
    """Any records may be lost: export, reconciliation, history and verification refuse and name the table. A
    dry run changes nothing. After the repair every record is there once, ranges cover each, and incremental states
    are those of a replay of all, also of what comes later."""
    tables = exported.copy(tmp_path)
    before = _records(tables)
    LOSSES[loss](tables)

    uses: list[Callable[[], object]] = [
        lambda: export(exported.kafka, tables.config, asks_brokers=False),
        lambda: reconcile(tables.config, "r3"),
        lambda: build_history(tables.config),
        lambda: verify(tables.config),
    ]
    for use in uses:
        with pytest.raises(DamagedTables, match="state_records") as caught:
            use()
        assert "acktrail tables repair" in caught.value.hint
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    assert not preview(lambda: exported.kafka, tables.config).report.is_sound
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == files

    done = repair(exported.kafka, tables.config, run_id="repair")
    assert (sum(each.records for each in done.available or ()) > 0, done.gone) == (True, ())
    assert _records(tables) == before
    again = preview(lambda: exported.kafka, tables.config)
    assert again.report.is_sound
    assert repair(exported.kafka, tables.config, run_id="repair-2").available == ()
    assert pc.sum(tables.read("export_ranges")["records_read"]).as_py() == len(before)
    assert export(exported.kafka, tables.config, asks_brokers=False).records_read == 0
    observe(exported.kafka, tables.config, run_id="r4")
    assert replayed_here(tables, "r4").rows == replayed_again(tables, "r4")
    assert len(replayed_again(tables, "r4")) == GROUPS


def test_what_is_lost_is_said_by_the_command(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal names the versions and what to do on one line with exit code 3; the dry run is the default and names
    state partitions and offsets."""
    tables = exported.copy(tmp_path)
    _log(tables)[-1].unlink()
    arguments = ("--bootstrap-server", exported.broker.bootstrap_servers, "--tables", tables.config.uri)

    refused = run(capsys, "run", "export", *arguments).complaint(3)
    assert "went back to version 2; export_ranges refers to version 3 (`acktrail tables repair`" in refused
    dry = run(capsys, "tables", "repair", "--json", *arguments)
    assert dry.code == 3
    shown = json.loads(dry.stdout)
    ends = {p: sum(1 for row in _records(Tables(exported.tables)) if row[0] == p) for p in range(PARTITIONS)}
    lost = {row["state_partition"]: (row["first_offset"], row["last_offset"]) for row in shown["available"]}
    assert lost == {number: (end * 2 // 3, end - 1) for number, end in ends.items()}
    assert (shown["executed"], shown["gone"]) == (False, [])
    done = run(capsys, "tables", "repair", "--execute", *arguments)
    assert done.code == 0, done.stderr
    assert done.stdout.count("exported again") == PARTITIONS


@pytest.fixture
def topic(losing: EmbeddedBroker) -> KafkaConfig:
    """An empty state topic."""
    renew(Workload(losing.config()))
    return losing.config()


def started(config: KafkaConfig, name: str = STATE_TOPIC) -> StateTask:
    """A bounded task at the beginning of the log."""
    task = StateTask(config, name, partitions=None if name == STATE_TOPIC else [0])
    task.start(SourceTaskContext())
    return task


def offsets(batches: list[SourceBatch], partition: int = 0) -> list[int]:
    found = [b.rows["state_records"] for b in batches if b.span is not None and b.span.partition == partition]
    return [offset for table in found for offset in table.column("offset").to_pylist()]


def read_offsets(config: KafkaConfig, topic: str) -> list[int]:
    """The offsets that a bounded reading of partition 0 of another topic gives."""
    return offsets(drain(started(config, topic)))


@pytest.fixture
def ordinary(losing: EmbeddedBroker) -> str:
    """A topic that takes transactions, which brokers refuse for the state topic."""
    name = f"ordinary-{uuid4().hex[:8]}"
    Workload(losing.config()).create_topic(name)
    return name


def test_a_log_that_ends_without_a_record_ends_the_reading(losing: EmbeddedBroker, ordinary: str) -> None:
    """The markers of transactions take offsets and are no records: a bounded reading ends behind them, aborted records
    are not given, and what lies on both sides of a hole is. It ends before an open transaction, too: what lies behind
    comes with the next run."""
    config = losing.config()
    sender = Producer({**to_librdkafka(config), "transactional.id": uuid4().hex})
    sender.init_transactions(30)
    for is_kept in (True, False):
        sender.begin_transaction()
        sender.produce(ordinary, b"junk", partition=0)
        sender.flush(30)
        (sender.commit_transaction if is_kept else sender.abort_transaction)(30)
    assert read_offsets(config, ordinary) == [0]
    Workload(config).produce(ordinary, 1)
    sender.begin_transaction()
    sender.produce(ordinary, b"junk", partition=0)
    assert sender.flush(30) == 0
    assert read_offsets(config, ordinary) == [0, 4]
    sender.commit_transaction(30)
    assert read_offsets(config, ordinary) == [0, 4, 5]


def test_records_after_the_start_belong_to_the_next_run(topic: KafkaConfig, losing: EmbeddedBroker) -> None:
    """A bounded run ends where the log ended when the task was started, however much is written meanwhile."""
    write(losing, "junk", {0: 5})
    task = started(topic)
    write(losing, "junk", {0: 5})
    assert offsets(drain(task)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("old_records", [0, 100])
def test_another_incarnation_is_never_mixed_in(topic: KafkaConfig, losing: EmbeddedBroker, old_records: int) -> None:
    """The topic is recreated with more records than the old one had: not one of them is given. From an empty log
    only the topic's id shows it."""
    write(losing, "old", {0: old_records})
    task = StateTask(topic, bounded=False, partitions=(0,))
    task.start(SourceTaskContext())
    first = until(lambda: old_records == 0 or task.poll(0.2), what="the old records")
    assert old_records == 0 or first[-1].position == old_records
    renew(Workload(losing.config()))
    write(losing, "new", {0: 5_000})

    def is_refused() -> bool:
        try:
            batches = task.poll(0.2)
        except ForeignCluster:
            return True
        assert not batches, batches
        return False

    until(is_refused, what="a refusal")
    task.stop()
