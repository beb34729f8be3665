"""A state partition whose log Kafka lost: nothing of the new log is mixed into the old one, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.real_broker import releases, restart
from servers.workload import until
from state_topics.filled_topic import STATE_TOPIC, create_state_topic, fill, read_all

from acktrail.config import TablesConfig
from acktrail.connect.metrics.worker_metrics import export_lag
from acktrail.connect.runtime.connector_run import ConfigStore, TargetState
from acktrail.connect.runtime.task_thread import RunState
from acktrail.connect.runtime.worker import Worker
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ForeignCluster, InputError
from acktrail.export.export_run import ExportSummary, export
from acktrail.export.repair_run import repair
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker

Rows = list[dict[str, object]]


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1"))
def losing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker with an empty state topic of three partitions; it keeps its folder over restarts."""
    with EmbeddedBroker(request.param, folder=tmp_path_factory.mktemp("broker")) as broker:
        create_state_topic(broker, 3)
        yield broker


@pytest.fixture(scope="module")
def tables(losing: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> TablesConfig:
    """Tables that hold 100 records of each of three partitions, which Kafka has as well."""
    config = TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))
    write(losing, "old", {0: 100, 1: 100, 2: 100})
    export_state(losing, config)
    return config


def write(broker: EmbeddedBroker, name: str, counts: dict[int, int]) -> None:
    fill(broker, ((p, b"key", b"%s %d" % (name.encode(), n)) for p, count in counts.items() for n in range(count)))


def export_state(broker: EmbeddedBroker, tables: TablesConfig) -> ExportSummary:
    return export(broker.config(), tables, asks_brokers=False)


def lose(broker: EmbeddedBroker, *partitions: int) -> None:
    """The disk with these logs is lost while the broker is down."""
    broker.stop()
    for partition in partitions:
        shutil.rmtree(Path(broker.folder) / "data" / f"{STATE_TOPIC}-{partition}")
    broker.start()


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


def test_the_new_incarnation_goes_on_and_is_not_broken_twice(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """The next exports find the same log, also after a restart without a loss, and remember that they looked."""
    assert export_state(losing, tables).records_read == 0
    restart(losing)
    assert export_state(losing, tables).records_read == 0
    version = Tables(tables).snapshot("state_records")
    assert export_state(losing, tables).commits == 0
    after = Tables(tables).snapshot("state_records")
    assert version is not None
    assert after is not None
    assert version.version == after.version
    write(losing, "more", {0: 5, 1: 5})
    summary = export_state(losing, tables)
    assert (summary.records_read, summary.gaps) == (10, ())
    assert [row["offset"] for row in rows(tables, "state_records", 1)] == [*range(100), *range(101, 136)]


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


def test_lag_and_positions_are_those_of_the_new_log(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """A worker's lag counts the records of the log that Kafka has now, not offsets of the tables; a person's position
    is one of the tables, and may lie up to that log's end and not behind it."""
    config = {"connector.class": "ShareGroupStateSource", "kafka.bootstrap.servers": losing.bootstrap_servers}
    worker = Worker(ConfigStore())
    try:
        worker.create("state", {**config, "sink.tables": tables.uri, "flush.interval.ms": "100"})
        run = worker.runs()["state"]
        until(lambda: set(export_lag(run).records.values()) == {0}, what="all that was written is exported")
        worker.aim("state", TargetState.STOPPED)
        until(lambda: worker.status("state").state is RunState.STOPPED, what="the connector stopped")
        write(losing, "later", {0: 4, 2: 3})
        behind = {int(each.rpartition("/")[2]): count for each, count in export_lag(run).records.items()}
        assert behind == {0: 4, 1: 0, 2: 3}
        ((partition, offset),) = (each for each in worker.offsets("state") if each[0]["partition"] == 0)
        end = int(offset["offset"]) + 4
        with pytest.raises(InputError, match=f"offset {end + 1} is {end + 1 - 101} there"):
            worker.alter_offsets("state", [(partition, {"offset": end + 1})])
        worker.alter_offsets("state", [(partition, {"offset": end})])
        assert {count for each, count in export_lag(run).records.items() if each.endswith("/0")} == {0}
    finally:
        worker.stop()
    export_state(losing, tables)
    assert set(export_lag(run).records.values()) == {0}


def test_a_log_lost_twice_has_two_breaks(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """An empty log is a break as well, and shifts add up."""
    lose(losing, 1)
    assert [gap.reason for gap in export_state(losing, tables).gaps] == ["log_replaced"]
    write(losing, "third", {1: 7})
    assert export_state(losing, tables).records_read == 7
    stored = rows(tables, "state_records", 1)
    assert [row["offset"] for row in stored[-7:]] == list(range(137, 144))
    assert stored[-1]["value"] == b"third 6"


def test_a_state_topic_that_is_gone_or_recreated_is_refused(losing: EmbeddedBroker, tables: TablesConfig) -> None:
    """Tables of a state topic that the cluster no longer has: exit code 3, also when the new one is empty."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": losing.bootstrap_servers})
    admin.delete_topics([STATE_TOPIC])[STATE_TOPIC].result(30)
    with pytest.raises(ForeignCluster, match="no state topic now"):
        export_state(losing, tables)
    create_state_topic(losing, 3)
    until(lambda: STATE_TOPIC in admin.list_topics(timeout=120).topics, what="the new state topic")
    with pytest.raises(ForeignCluster, match="has id"):
        export_state(losing, tables)
