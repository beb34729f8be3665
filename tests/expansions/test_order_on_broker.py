"""What the audit proves is what happened: real producers, groups of every type, and an expansion in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from broker.workload import Workload, until
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer, TopicPartition
from definitions.dependencies import dependencies
from expansions.keyed_traffic import CommittingGroup, KeyedProducer, Read, overtaken
from samples.history_tables import build

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.columnar.expansion import share_evidence
from acktrail.config import TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.executors import InProcess
from acktrail.expansions.audit_run import audit_expansions
from acktrail.export.export_run import export
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.audited_expansions import read_details, read_expansions
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.open_records_reader import OpenWhenBegun
from acktrail.topic_expansion.apply_expansion import apply_expansion, open_expansion_journal
from acktrail.topic_expansion.collect_expansion import expansion_request, make_plan
from acktrail.topic_expansion.stored_look import take_look
from acktrail_simulation.expansion.key_partitions import partition_of_key

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

SETTLE: Final = dt.timedelta(seconds=3)
"""Producers of these tests ask for metadata every 0.4 s."""
PARTITIONERS: Final = {KeyMapping.MURMUR2: "murmur2_random", KeyMapping.CRC32: "consistent_random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A broker, and the tables that looks at one topic go to."""

    broker: EmbeddedBroker
    admin: ShareGroupAdmin
    workload: Workload
    tables: TablesConfig
    topic: str

    def look(self) -> list[dict[str, Any]]:
        """Look once; the rows about partitions."""
        look = take_look(self.admin, self.tables, topics=[self.topic])
        return Tables(self.tables).rows("partition_observations", {"run_id": look.run_id})

    def expand(self, partitions: int) -> None:
        """As ``acktrail expand apply`` does, so that it is known as one step."""
        plan = make_plan(self.admin, expansion_request(self.topic, partitions), tables=None, created_by="ann")
        apply_expansion(self.admin, open_expansion_journal(self.tables, plan, actor="ann"), plan)

    def settle(self, meanwhile: Callable[[], object] = lambda: None) -> dict[int, int]:
        """Look until an expansion has settled; the ends of the logs then."""
        begun: list[dt.datetime] = []

        def settled() -> list[dict[str, Any]]:
            meanwhile()
            rows = self.look()
            begun.append(rows[0]["observed_at"])
            return rows if begun[-1] - begun[0] >= SETTLE else []

        rows: list[dict[str, Any]] = until(settled, what="producers to know the count")
        return {row["partition"]: row["log_end_offset"] for row in rows}

    def audit(self, mapping: KeyMapping) -> Tables:
        audit_expansions(
            self.tables, lambda _rows: nullcontext(InProcess()), settle=SETTLE, mapping_of=lambda _topic: mapping
        )
        return Tables(self.tables)

    def verdicts(self, tables: Tables, group: str) -> dict[int, tuple[str, int]]:
        """Verdict and deciding source of a group, by destination."""
        rows = tables.rows("ordering_audits", {"group_id": group})
        return {row["partition"]: (row["verdict"], row["source_partition"]) for row in rows}


@contextmanager
def a_ledger(broker: EmbeddedBroker, tables: Path, topic: str, partitions: int) -> Iterator[Ledger]:
    workload = Workload(broker.config())
    workload.create_topic(topic, partitions)
    with ShareGroupAdmin(broker.config()) as admin:
        yield Ledger(broker=broker, admin=admin, workload=workload, tables=TablesConfig(uri=str(tables)), topic=topic)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker("4.4.0", properties={"group.share.delivery.count.limit": "10"}) as broker:
        yield broker


def build_history(ledger: Ledger) -> None:
    """Export the state records and bring the history of deliveries up to their end."""
    export(ledger.broker.config(), ledger.tables, run_id="exported")
    build(Tables(ledger.tables))


def opened(ledger: Ledger, group: str) -> list[OpenWhenBegun]:
    """What the history of a share group has of old partitions when it began with new ones."""
    (line,) = read_expansions(Tables(ledger.tables))
    return [each for each in read_details(Tables(ledger.tables), line).opened if each.group_id == group]


def everything(ledger: Ledger, partitions: int) -> list[Read]:
    """All records of the topic."""
    own = {"group.id": "reader-of-all", "enable.auto.commit": False}
    places = [TopicPartition(ledger.topic, partition, 0) for partition in range(partitions)]
    reads: list[Read] = []
    with Consumer({**to_librdkafka(ledger.broker.config()), **own}) as consumer:
        left = {place.partition: consumer.get_watermark_offsets(place, timeout=60)[1] for place in places}
        consumer.assign(places)
        while any(left.values()):
            for message in consumer.consume(1_000, 0.2):
                reads.append(Read.of(message))
                left[reads[-1].partition] = max(0, left[reads[-1].partition] - 1)
    return reads


def commit(ledger: Ledger, group: str, offsets: Iterable[int]) -> None:
    """Commit positions as a classic group does."""
    own = {"group.id": group, "enable.auto.commit": False}
    with Consumer({**to_librdkafka(ledger.broker.config()), **own}) as consumer:
        places = [TopicPartition(ledger.topic, partition, at) for partition, at in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)


def share_reads(consumer: ShareConsumer, *, but: int | None = None) -> list[Read]:
    """Accept what comes, and release what comes from the partition `but`."""
    reads = []
    for message in consumer.poll(0.2) or ():
        read = Read.of(message)
        if read.partition == but:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
        else:
            reads.append(read)
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    consumer.commit_sync()
    return reads


def reads_of_each(consumer: ShareConsumer, partitions: Iterable[int]) -> list[Read]:
    """Accept until something came from each of `partitions`, and nothing of partition 0."""
    reads: list[Read] = []

    def have() -> bool:
        reads.extend(share_reads(consumer, but=0))
        return {read.partition for read in reads} >= {*partitions}

    until(have, what="records for the share group")
    return reads


def reads_beyond(consumer: ShareConsumer, partition: int, offset: int) -> list[Read]:
    """Accept until a record of `partition` at `offset` or later came, and nothing of partition 0."""
    reads: list[Read] = []

    def have() -> bool:
        reads.extend(share_reads(consumer, but=0))
        return any(read.partition == partition and read.offset >= offset for read in reads)

    until(have, what=f"offset {offset} of partition {partition} for the share group")
    return reads


class Crowd:
    """Groups on one topic of two partitions. The late ones stop reading partition 0 when told to; the draining ones
    leave new partitions alone until told otherwise."""

    def __init__(self, ledger: Ledger) -> None:
        self.is_held, self.is_draining = False, True
        config, name = ledger.broker.config(), ledger.topic

        def groups(kind: str, waits: Callable[[int], bool]) -> dict[str, CommittingGroup]:
            names = {protocol: f"{kind}-{protocol}-{name}" for protocol in ("consumer", "classic")}
            return {group: CommittingGroup(config, group, protocol, name, waits) for protocol, group in names.items()}

        self.late = groups("late", lambda partition: partition == 0 and self.is_held)
        self.drained = groups("drained", lambda partition: partition > 1 and self.is_draining)
        self.share_group = f"late-share-{name}"
        self.by_share: list[Read] = []

    def step(self) -> None:
        for group in (*self.late.values(), *self.drained.values()):
            group.step()

    def step_until(self, groups: Iterable[CommittingGroup], partitions: Iterable[int], offset: int) -> None:
        """Go on until these groups have read these partitions up to `offset`."""
        wanted = [(group, partition) for group in groups for partition in partitions]

        def have() -> bool:
            self.step()
            return all(group.has_read(partition, offset) for group, partition in wanted)

        until(have, what=f"offset {offset}")

    def close(self) -> None:
        """Also after a failure: a consumer that is left to the garbage collector hangs once its broker is gone."""
        for group in (*self.late.values(), *self.drained.values()):
            group.close()


def live_through(ledger: Ledger, mapping: KeyMapping, new_count: int) -> Crowd:
    """An expansion to `new_count` partitions under traffic, with looks all along."""
    new, explicit = range(2, new_count), {"share.acknowledgement.mode": "explicit"}
    with closing(Crowd(ledger)) as crowd:
        with (
            KeyedProducer(ledger.broker.config(), ledger.topic, PARTITIONERS[mapping]).running() as producer,
            ledger.workload.share_consumer(crowd.share_group, ledger.topic, **explicit) as sharing,
        ):
            crowd.step_until([*crowd.late.values(), *crowd.drained.values()], (0, 1), 20)
            crowd.is_held = True
            until(lambda: share_reads(sharing, but=0), what="the share group at work")
            ledger.look()
            ledger.expand(new_count)
            ends = ledger.settle(crowd.step)
            for _ in range(2):  # a first position proves no progress, a second one does
                crowd.by_share += reads_of_each(sharing, new)
                ledger.look()
            crowd.step_until(crowd.late.values(), new, 40)
            crowd.step_until(crowd.late.values(), (1,), ends[1] + 20)
            crowd.by_share += reads_beyond(sharing, 1, ends[1] + 20)  # there, too, the look must show its progress
            crowd.step_until(crowd.drained.values(), (0,), ends[0])
            crowd.step_until(crowd.drained.values(), (1,), ends[1])
            ledger.look()
            crowd.is_draining = False
            crowd.step_until(crowd.drained.values(), new, 40)
            ledger.look()
            producer.stop()
            while not any(read.partition == 0 for read in crowd.by_share):
                crowd.by_share += share_reads(sharing)
        crowd.is_held = False
        crowd.step_until(crowd.late.values(), (0,), ends[0])
        ledger.look()
    return crowd


@pytest.mark.parametrize(
    ("mapping", "new_count"),
    [
        (KeyMapping.MURMUR2, 3),
        (KeyMapping.CRC32, 4),
        pytest.param(KeyMapping.MURMUR2, 4, marks=pytest.mark.full),
        pytest.param(KeyMapping.CRC32, 3, marks=pytest.mark.full),
    ],
)
def test_what_overtakes_is_found_and_what_is_drained_is_safe(
    running: EmbeddedBroker, tmp_path: Path, mapping: KeyMapping, new_count: int
) -> None:
    """R003-01: producers never stop while a topic of two partitions grows. Groups that hold partition 0 back get
    records of one key in another order, which reading shows, and the audit proves it; those that finish the old
    partitions first do not, and the audit proves that. From 2 to 3 keys also move from 0 to 1, where those groups go
    on: their order is broken there, too. The fences contain the last record by the old count."""
    with a_ledger(running, tmp_path / "tables", f"orders-{mapping}-{new_count}", 2) as ledger:
        crowd = live_through(ledger, mapping, new_count)
        build_history(ledger)
        tables = ledger.audit(mapping)
        new = range(2, new_count)
        behind_0 = {each.destination for each in dependencies(2, new_count, mapping) if each.source == 0}
        assert (1 in behind_0) == (new_count == 3)
        late = {group_id: group.reads for group_id, group in crowd.late.items()} | {crowd.share_group: crowd.by_share}
        for group_id, reads in late.items():
            assert any(read.partition == 0 for read in overtaken(reads)), group_id
            found = ledger.verdicts(tables, group_id)
            verdicts = {found[partition] for partition in behind_0}
            assert ("violation", 0) in verdicts, (group_id, found)
            # Of a share group it is proven where state records show what was open when the destination was begun.
            perhaps = {("indeterminate", 0)} if group_id == crowd.share_group else set()
            assert verdicts <= {("violation", 0), *perhaps}, (group_id, found)
        left = opened(ledger, crowd.share_group)
        behind_0 &= {*new}
        assert {each.source_partition for each in left if each.partition in behind_0} == {0}
        assert all(
            each.left.first_open == 0 and each.left.open_records >= 10 for each in left if each.partition in behind_0
        ), left
        for group_id, group in crowd.drained.items():
            found = ledger.verdicts(tables, group_id)
            assert {found[partition][0] for partition in new} == {"safe"}, (group_id, found)
            assert [read for read in overtaken(group.reads) if read.partition in new] == []

        fences = {row["partition"]: row for row in tables.rows("expansion_fences")}
        reads = everything(ledger, new_count)
        for partition, fence in fences.items():
            own = [read for read in reads if read.partition == partition]
            stale = [read.offset for read in own if partition_of_key(mapping, read.key, new_count) != partition]
            assert fence["fence_low"] <= max(fence["fence_low"], 1 + max(stale)) <= fence["fence_high"]


def test_a_share_group_that_is_drained_is_safe(
    running: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-01: nothing is written while the topic grows, and the group has finished everything before it begins the new
    partitions: that is proven once the state records are exported, and not by its start offsets. Broker and test share
    a clock."""
    monkeypatch.setattr(share_evidence, "CLOCKS_US", 0)
    with a_ledger(running, tmp_path / "tables", "calm", 2) as ledger:
        for partition in (0, 1):
            ledger.workload.produce("calm", 20, partition)
        ledger.workload.acknowledge("calm-desk", "calm", 40)
        ledger.look()
        ledger.expand(4)
        ledger.settle()
        for places in ((0, 1), (2, 3)):
            for partition in places:
                ledger.workload.produce("calm", 10, partition)
            ledger.workload.acknowledge("calm-desk", "calm", 20)
            ledger.look()
        for partition in (2, 3):
            ledger.workload.produce("calm", 10, partition)
        ledger.workload.acknowledge("calm-desk", "calm", 20)
        ledger.look()
        unproven = ledger.verdicts(ledger.audit(KeyMapping.MURMUR2), "calm-desk")
        assert {verdict for verdict, _ in unproven.values()} == {"indeterminate"}
        export(ledger.broker.config(), ledger.tables, run_id="exported")
        tables = ledger.audit(KeyMapping.MURMUR2)

        assert ledger.verdicts(tables, "calm-desk") == {2: ("safe", 0), 3: ("safe", 1)}


@pytest.mark.parametrize("release", ["4.3.1", pytest.param("4.4.0", marks=pytest.mark.full)])
def test_a_share_group_whose_start_offset_stands_is_no_violation(release: str, tmp_path: Path) -> None:
    """All 60 records from before the expansion are acknowledged, in several commits, and nothing comes into the old
    partitions afterwards: the start offsets that the broker describes stand below the fences, and nothing is open. The
    plan of the expansion says so, and neither a verdict nor a finding calls it a violation."""
    with EmbeddedBroker(release) as broker, a_ledger(broker, tmp_path / "tables", "calm", 2) as ledger:
        for _ in range(3):
            for partition in (0, 1):
                ledger.workload.produce("calm", 10, partition)
            ledger.workload.acknowledge("calm-desk", "calm", 20)
        ledger.look()
        asked = expansion_request("calm", 4)
        (group,) = make_plan(ledger.admin, asked, tables=None, created_by="ann").groups
        assert (group.open_records, group.unknown) == (0, 0)
        ledger.expand(4)
        ledger.settle()
        for _ in range(2):  # a first position proves no progress, a second one does
            for partition in (2, 3):
                ledger.workload.produce("calm", 10, partition)
            ledger.workload.acknowledge("calm-desk", "calm", 20)
            ledger.look()
        starts = {row["partition"]: row["position"] for row in Tables(ledger.tables).rows("group_positions")}
        assert min(starts[0], starts[1]) < 30, "a start offset that moved is no case of this"
        for is_built in (False, True):
            if is_built:
                build_history(ledger)
            tables = ledger.audit(KeyMapping.MURMUR2)

            assert {verdict for verdict, _ in ledger.verdicts(tables, "calm-desk").values()} <= {
                "indeterminate",
                "safe",
            }
            assert [row for row in tables.rows("findings") if row["rule"].endswith("kept_order")] == []


@pytest.mark.full
def test_moves_between_partitions_that_were_there_are_proven_in_order(running: EmbeddedBroker, tmp_path: Path) -> None:
    """R003-02: from 2 to 3 keys move from 0 to 1 and back. Nothing is written while the topic grows: a group that has
    finished both is safe in each of the three; one that is at the end of 1 alone and goes on there is not."""
    with a_ledger(running, tmp_path / "tables", "crossed", 2) as ledger:
        places: dict[str, list[list[int]]] = {
            "both": [[20, 20], [20, 20], [25, 25, 5], [30, 30, 10]],
            "one": [[5, 20], [5, 20], [5, 25, 5], [5, 30, 10]],
        }
        for step in range(4):
            for partition in range(3 if step > 1 else 2 if step == 0 else 0):
                ledger.workload.produce("crossed", 10 if step else 20, partition)
            if step == 1:
                ledger.expand(3)
                ledger.settle()
            for group, positions in places.items():
                commit(ledger, group, positions[step])
            ledger.look()
        tables = ledger.audit(KeyMapping.MURMUR2)

        assert {partition: verdict for partition, (verdict, _) in ledger.verdicts(tables, "both").items()} == {
            0: "safe",
            1: "safe",
            2: "safe",
        }
        assert ledger.verdicts(tables, "one") == {0: ("not_started", 1), 1: ("violation", 0), 2: ("violation", 0)}


@pytest.mark.few(1)
@pytest.mark.parametrize(("release", "verdict"), [("4.3.1", "skipped_records"), ("4.4.0", "ok")])
def test_first_records_that_a_share_group_skips(release: str, verdict: str, tmp_path: Path) -> None:
    """Up to 4.3 a share group begins with a new partition at its end (KAFKA-20742). What came before the first
    record that it got is named."""
    with EmbeddedBroker(release) as broker, a_ledger(broker, tmp_path / "tables", "grown", 1) as ledger:
        ledger.workload.produce("grown", 5)
        ledger.workload.acknowledge("desk", "grown", 5)
        ledger.workload.configure_group("desk", share_auto_offset_reset="latest")
        ledger.look()
        ledger.expand(2)
        ledger.workload.produce("grown", 7, partition=1)
        ledger.look()
        explicit = {"share.acknowledgement.mode": "explicit", "group.id": "desk", "log_level": 3}
        consumer = ShareConsumer({**to_librdkafka(broker.config()), **explicit})
        consumer.subscribe(["grown"])

        def got() -> list[int | None]:
            ledger.workload.produce("grown", 1, partition=1)
            messages = list(consumer.poll(1.0) or ())
            for message in messages:
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync()
            return [message.offset() for message in messages]

        first = until(got, what="records of the new partition")[0]
        consumer.close()
        ledger.look()
        export(broker.config(), ledger.tables, run_id="exported")
        tables = ledger.audit(KeyMapping.NONE)

        assert first >= 7 if release == "4.3.1" else first == 0
        (start,) = tables.rows("start_audits")
        assert (start["group_id"], start["partition"], start["verdict"]) == ("desk", 1, verdict)
        assert (start["first_start_offset"], start["skipped_records"]) == (first, first)
