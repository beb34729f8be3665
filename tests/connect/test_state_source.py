"""The state task gives every record of the state topic once, and says what it could not give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow.compute as pc
import pytest
from drivers.bounded_reading import drain
from drivers.whole_topic import records_of
from jobs.replaying import replayed_again, replayed_here
from servers.workload import Worked, Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ForeignCluster
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.descriptions import TopicPartition as AskedPartition
from acktrail.model.log_positions import SourcePartition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.export import export_run, repair_run
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.state_source import StateTask
from acktrail_embedded import EmbeddedBroker

pytestmark = pytest.mark.broker

Record = tuple[int, int, bytes | None, bytes | None]


def run(config: KafkaConfig, positions: Mapping[SourcePartition, int]) -> list[SourceBatch]:
    """One bounded run over all partitions."""
    return drain(StateTask(config), SourceTaskContext(run_id="run-1", position=positions.get))


def positions_after(batches: Sequence[SourceBatch]) -> dict[SourcePartition, int]:
    return {batch.source_partition: batch.position for batch in batches if isinstance(batch.position, int)}


def records(batches: Sequence[SourceBatch]) -> list[Record]:
    """Address and bytes of every row, in the order given."""
    rows: list[Record] = []
    for batch in batches:
        table = batch.rows["state_records"]
        columns = [table.column(name).to_pylist() for name in ("state_partition", "offset", "key", "value")]
        rows += zip(*columns, strict=True)
    return rows


def log_of(config: KafkaConfig) -> list[Record]:
    """The whole topic by a plain consumer: partition by partition."""
    found = [(r.state_partition, r.offset, r.key, r.value) for r in records_of(to_librdkafka(config), STATE_TOPIC)]
    return sorted(found, key=lambda row: row[:2])


def test_two_bounded_runs_give_every_record_once(kafka: KafkaConfig, worked: Worked, workload: Workload) -> None:
    """What a second run gives begins where the first ended: together they are the log, byte by byte."""
    first = run(kafka, {})
    workload.acknowledge(f"second-{uuid4().hex[:8]}", worked.topic, 30)
    second = run(kafka, positions_after(first))
    whole = log_of(kafka)
    assert sorted(records(first) + records(second), key=lambda row: row[:2]) == whole
    assert len(records(second)) >= 30
    assert run(kafka, positions_after(first) | positions_after(second)) == []


def test_batches_are_consecutive_and_say_what_they_hold(kafka: KafkaConfig, worked: Worked) -> None:
    """Each batch begins at the position of the one before; its span, rows and position agree. Rows have the table's
    columns and their origin; the last state of the group is the one that the workload left."""
    batches = run(kafka, {})
    at: dict[SourcePartition, int] = {}
    for batch in batches:
        table, span = batch.rows["state_records"], batch.span
        assert span is not None
        offsets = table.column("offset").to_pylist()
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert (span.first_offset, span.last_offset, span.records) == (offsets[0], offsets[-1], len(offsets))
        assert offsets[0] == at.get(batch.source_partition, span.log_start_offset)
        assert batch.position == offsets[-1] + 1 <= span.log_end_offset
        at[batch.source_partition] = batch.position
        assert set(table.column("state_partition").to_pylist()) == {span.partition}
    with ShareGroupAdmin(kafka) as admin:
        cluster_id = admin.cluster_id
        (topic,) = admin.topics([worked.topic])
        (state_topic,) = admin.topics([STATE_TOPIC])
    assert {batch.rows["state_records"].schema for batch in batches} == {STATE_RECORDS}
    rows = [row for batch in batches for row in batch.rows["state_records"].to_pylist()]
    assert {row["cluster_id"] for row in rows} == {cluster_id}
    assert {row["run_id"] for row in rows} == {"run-1"}
    assert {row["decode_status"] for row in rows} == {"decoded"}
    ours = [r for r in rows if (r["group_id"], r["topic_id"], r["partition"]) == (worked.group, topic.topic_id, 0)]
    last = max(ours, key=lambda row: row["offset"])
    assert last["start_offset"] + last["delivery_complete_count"] >= worked.accepted
    spans = [batch.span for batch in batches if batch.span is not None]
    assert {span.topic_id for span in spans} == {state_topic.topic_id}
    assert {batch.source_partition for batch in batches} == {
        f"state/{cluster_id}/{state_topic.topic_id}/{span.partition}" for span in spans
    }


def test_some_partitions_are_read_alone(kafka: KafkaConfig, worked: Worked) -> None:
    """A task for some partitions gives all their records and no others."""
    whole = log_of(kafka)
    with ShareGroupAdmin(kafka) as admin:
        (topic,) = admin.topics([STATE_TOPIC])
    one = {whole[0][0]}
    for chosen in (one, {*range(topic.partition_count)} - one):
        found = records(drain(StateTask(kafka, partitions=chosen), SourceTaskContext()))
        assert sorted(found, key=lambda row: row[:2]) == [row for row in whole if row[0] in chosen]


def test_a_position_beyond_the_log_is_refused(kafka: KafkaConfig, worked: Worked) -> None:
    """Tables that know more than the topic has belong to another topic."""
    task = StateTask(kafka, partitions=(0,))
    with pytest.raises(ForeignCluster, match="ends at"):
        task.start(SourceTaskContext(position=lambda _: 10**9))
    task.stop()


@pytest.fixture(scope="module")
def pruning() -> Iterator[EmbeddedBroker]:
    """A broker that prunes what it can every second."""
    properties = {
        "share.coordinator.state.topic.prune.interval.ms": "1000",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    with EmbeddedBroker(properties=properties) as broker:
        yield broker


def test_without_a_state_topic_there_is_nothing_to_do(pruning: EmbeddedBroker) -> None:
    """In a cluster that never saw a share consumer a bounded task is finished at once, and says why; a continuous one
    waits for the topic, and reads it."""
    with ShareGroupAdmin(pruning.config()) as admin:
        absent = admin.topics([STATE_TOPIC])[0].error_code != 0
    assert absent, "another test of this module made state before"
    task = StateTask(pruning.config())
    assert drain(task, SourceTaskContext()) == []
    assert not task.is_present

    waiting = StateTask(pruning.config(), bounded=False)
    waiting.start(SourceTaskContext())
    assert not waiting.poll(0)
    assert not waiting.is_finished
    workload = Workload(pruning.config())
    workload.create_topic("orders")
    workload.produce("orders", 3)
    workload.acknowledge("auditors", "orders", 3)
    until(lambda: waiting.poll(0.2), what="the first records of the topic")
    assert waiting.is_present
    waiting.stop()


def log_start(config: KafkaConfig) -> int:
    with ShareGroupAdmin(config) as admin:
        return admin.list_offsets([AskedPartition(topic=STATE_TOPIC, partition=0)])[0].log_start_offset or 0


def make_pruned(broker: EmbeddedBroker, beyond: int = 0) -> None:
    """Acknowledge until the state topic's log starts after `beyond`. All in one share partition: the oldest snapshot
    of any other would hold the pruning back."""
    workload = Workload(broker.config())
    with ShareGroupAdmin(broker.config()) as admin:
        if admin.topics(["orders"])[0].error_code:
            workload.create_topic("orders")
    workload.produce("orders", 30)
    workload.acknowledge("auditors", "orders", 30)
    until(lambda: log_start(broker.config()) > beyond, what="pruning")


def test_pruned_offsets_are_a_gap(pruning: EmbeddedBroker) -> None:
    """A log that starts after the position gives the gap first, then everything that is left; the first run of all
    gives it another reason."""
    make_pruned(pruning)
    asked, first = log_start(pruning.config()), run(pruning.config(), {})[0].span
    assert first is not None
    assert (first.gap_first, first.gap_reason) == (0, "pruned_before_first_export")
    assert (first.gap_last or 0) + 1 >= asked > 0
    gap, *rest = drain(StateTask(pruning.config()), SourceTaskContext(position=lambda _: 0))
    assert gap.span is not None
    assert (gap.span.gap_first, gap.span.records, gap.rows["state_records"].num_rows) == (0, 0, 0)
    assert gap.position == gap.span.gap_last + 1 == gap.span.log_start_offset  # type: ignore[operator]
    assert rest[0].span is not None
    assert rest[0].span.first_offset == gap.position
    assert all(batch.span is not None and batch.span.gap_first is None for batch in rest)


def test_a_repair_records_what_was_pruned_as_a_gap(pruning: EmbeddedBroker, tmp_path: Path) -> None:
    """The newest commit of the records is lost, and Kafka pruned some of it since: that is a gap after the repair, the
    rest is exported again; rows, ranges and gaps add up, and states are those of a replay of all."""
    kafka, target = pruning.config(), TablesConfig(uri=str(tmp_path / "tables"))
    tables = Tables(target)
    for run in ("r1", "r2"):
        make_pruned(pruning)
        export_run.observe(kafka, target, run_id=run)
        replayed_here(tables, run)
    reached = pc.max(tables.read("state_records")["offset"]).as_py()
    max((tmp_path / "tables" / "state_records" / "_delta_log").glob("*.json")).unlink()
    make_pruned(pruning, beyond=reached)

    done = repair_run.repair(kafka, target, run_id="repair")
    assert done.gone, (log_start(kafka), reached, done)
    gaps = [row for row in tables.read("export_ranges").to_pylist() if row["gap_first"] is not None]
    lost = [offset for row in gaps for offset in range(row["gap_first"], row["gap_last"] + 1)]
    assert {offset for each in done.gone for offset in range(each.first_offset, each.last_offset + 1)} <= set(lost)
    offsets = sorted([*tables.read("state_records")["offset"].to_pylist(), *lost])
    assert offsets == list(range(offsets[0], reached + 1))
    export_run.observe(kafka, target, run_id="r3")
    assert repair_run.preview(lambda: kafka, target).report.is_sound
    rows = tables.read("export_ranges", columns=["records_read"])
    assert pc.sum(rows["records_read"]).as_py() == tables.read("state_records").num_rows
    assert replayed_here(tables, "r3").rows == replayed_again(tables, "r3")


def test_what_is_pruned_between_start_and_fetch_is_a_gap(pruning: EmbeddedBroker) -> None:
    """The fetch that finds its offset gone reports it, and the run continues at the log's new start."""
    make_pruned(pruning)
    position = log_start(pruning.config()) + 1

    def pruned_meanwhile(_: SourcePartition) -> int:
        """The position is asked for when the log's bounds have been seen, and before anything is fetched."""
        make_pruned(pruning, beyond=position)
        return position

    task = StateTask(pruning.config(), bounded=False)
    task.start(SourceTaskContext(position=pruned_meanwhile))
    batches: list[SourceBatch] = []

    def has_come() -> bool:
        batches.extend(task.poll(0.2))
        return any(batch.span is not None and batch.span.records for batch in batches)

    until(has_come, what="a gap and records")
    task.stop()
    spans = [batch.span for batch in batches if batch.span is not None]
    assert spans[0].gap_first == position
    for span in spans:  # the log may be pruned again before it is reached
        for first, last in ((span.gap_first, span.gap_last), (span.first_offset, span.last_offset)):
            if first is not None and last is not None:
                assert first == position
                position = last + 1
