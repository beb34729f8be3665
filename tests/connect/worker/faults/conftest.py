"""A broker to break, a state topic that is written all the time, and workers that export it. One worker outlives most
faults: it is started again only by a test that kills it, and replaced only after a test that failed."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from servers.connect_worker import ConnectWorker, connect_worker
from servers.kafka_proxy import KafkaProxy, kafka_proxy
from servers.workload import until
from state_topics.filled_topic import STATE_TOPIC, check_nothing_lost_or_doubled, create_state_topic

from acktrail.config import TablesConfig
from acktrail.model.log_positions import state_source_partition
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_embedded import EmbeddedBroker

PARTITIONS: Final = 5

_MANY: Final = 100

Pair = tuple[bytes | None, bytes | None]


def good(number: int) -> Pair:
    """A snapshot of one of some groups."""
    group_id = b"group-%d" % (number % 7)
    key = struct.pack(">hh", 0, len(group_id)) + group_id + bytes(15) + b"\1" + struct.pack(">i", number % 3)
    head = struct.pack(">hiiiqqq", 0, number, 1, 1, number, number, number)
    batch = struct.pack(">qqbhB", number, number + 3, 2, 1, 0)
    return key, head + b"\2" + batch + b"\0"


POISON: Final[tuple[Pair, ...]] = (
    (None, None),
    (None, b"value"),
    (b"", b""),
    (b"\x00\x00", b"short key"),
    (b"\x00\x07unknown type", b"value"),
    (b"\xff" * 40, b"\xff" * 40),
    (good(1)[0], b""),
    (good(1)[0], b"\x00\x63of a version to come"),
    (good(1)[0], (good(1)[1] or b"")[:-3]),
    (good(1)[0], bytes(100_000)),
)
"""Records that cannot be decoded, one of each kind: each must be a row with a reason."""


@dataclass
class Writer:
    """Appends records to the state topic until it is stopped, also while the broker is away for a while."""

    broker: EmbeddedBroker
    rate: int = 400
    written: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        properties = {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "client.id": "__admin_client",  # brokers take records of internal topics from this name only
            "enable.idempotence": True,
            "message.timeout.ms": 300_000,
            "linger.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        producer = Producer(properties)
        for number in itertools.count():
            if self._stop.wait(10 / self.rate if number % 10 == 0 else 0):
                break
            key, value = POISON[number // 50 % len(POISON)] if number % 50 == 0 else good(number)
            producer.produce(STATE_TOPIC, key=key, value=value, partition=number % PARTITIONS)
            producer.poll(0)
            self.written += 1
        left = producer.flush(240)
        if left:
            raise KafkaException(f"{left} records were not written")


@contextmanager
def writing(broker: EmbeddedBroker, rate: int = 400) -> Iterator[Writer]:
    """A writer at work until the block ends; then every record of it is in the topic."""
    writer = Writer(broker, rate)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer._stop.set()
        thread.join(300)
        assert not thread.is_alive()


@dataclass
class Export:
    """A worker that exports the state topic of `broker` into `tables`, through `network`. `is_sound`: the last test
    that used it came to its end."""

    broker: EmbeddedBroker
    tables: TablesConfig
    worker: ConnectWorker
    network: KafkaProxy
    is_sound: bool = True

    def rows(self) -> int:
        snapshot = self._snapshot()
        return 0 if snapshot is None else sum(file.rows or 0 for file in snapshot.files())

    def _snapshot(self) -> TableSnapshot | None:
        tables = Tables(self.tables)
        tables.begin()  # the worker makes them
        return tables.snapshot("state_records")

    def grows(self, by: int = 1) -> None:
        """Wait until there are more rows."""
        before = self.rows()
        self._until(lambda: self.rows() >= before + by, "more rows")

    def pauses(self, than: int) -> None:
        """Wait until more outages than that have begun."""
        self._until(lambda: self.outages()[0] > than, "the line that says that it pauses")

    def continues(self) -> None:
        """Wait until every outage that began has ended."""
        self._until(lambda: len(set(self.outages())) == 1, "the line that says that it continues")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, timeout_s=120, what=what)
        except AssertionError as error:
            ended = f"rows: {self.rows()}, exit code: {self.worker.ends_with_its_stack()}"
            error.add_note("\n".join((ended, *self.worker.said[-60:])))
            raise

    def caught_up(self) -> bool:
        """Whether the positions are the ends of the logs."""
        snapshot = self._snapshot()
        if snapshot is None:
            return False
        ids = [snapshot.properties[name] for name in ("cluster_id", "state_topic_id")]
        ends = log_ends(self.broker)
        return all(
            (snapshot.transaction_version(state_source_partition(*ids, number)) or 0) == end
            for number, end in ends.items()
        )

    def is_complete(self) -> bool:
        """Whether the tables have every record; ``export_ranges`` follows a little later."""
        try:
            check_nothing_lost_or_doubled(self.broker, self.tables)
        except AssertionError:
            return False
        return True

    def complete(self) -> int:
        """Let the worker reach the end, and prove that nothing is lost or doubled; how many rows there are."""
        self._until(self.caught_up, "a complete export")
        for _ in range(20):
            if self.is_complete():
                break
        rows = check_nothing_lost_or_doubled(self.broker, self.tables)
        self.is_sound = True
        return rows

    def gaps(self) -> int:
        """How many gaps the tables have."""
        found = Tables(self.tables).read("export_ranges", columns=["gap_first"])["gap_first"]
        return len(found) - int(found.null_count)

    def outages(self) -> tuple[int, int]:
        """How many lines said that an outage of the task began, and that one ended."""
        said = [line for line in self.worker.said if "task 0" in line]
        return sum("pauses, trying again" in line for line in said), sum("continues after" in line for line in said)


def log_starts(broker: EmbeddedBroker) -> dict[int, int]:
    return _offsets(broker, OffsetSpec.earliest())


def log_ends(broker: EmbeddedBroker) -> dict[int, int]:
    return _offsets(broker, OffsetSpec.latest())


def _offsets(broker: EmbeddedBroker, spec: OffsetSpec) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_offsets({TopicPartition(STATE_TOPIC, number): spec for number in range(PARTITIONS)})
    return {place.partition: future.result(30).offset for place, future in asked.items()}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    quickly = {
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
        "log.segment.delete.delay.ms": "50",  # 0: the deletion of logs goes round without a pause
        # A broker that was killed is let in again after the session that it had.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with EmbeddedBroker(properties=quickly) as running:
        create_state_topic(running, PARTITIONS)
        yield running


OpenExport = Callable[..., Export]


@contextmanager
def exports(broker: EmbeddedBroker, folder: Path) -> Iterator[OpenExport]:
    """Opens exports that end with the block, into tables of their own unless `tables` are given. Keys of the worker can
    be given, and another connector with the same cluster and tables (`beside`)."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(kafka_proxy(broker.bootstrap_servers))

        def opened(
            tables: TablesConfig | None = None,
            *,
            worker: Mapping[str, object] | None = None,
            beside: Mapping[str, Any] | None = None,
        ) -> Export:
            target = tables or TablesConfig(uri=str(folder / "tables"))
            config = {
                "connector.class": "ShareGroupStateSource",
                "kafka.bootstrap.servers": network.config().bootstrap_servers,
                "kafka.request.timeout.ms": "2000",
                "sink.tables": target.uri,
                "flush.interval.ms": "100",
                "linger.ms": "20",
                "errors.retry.delay.max.ms": "1000",
                **{f"sink.option.{key}": value for key, value in target.options.items()},
            }
            own = {"rest.listener": "", "lease.ttl.ms": 5_000, **(worker or {})}
            connectors = [{"name": "state", "config": config}]
            if beside:
                common = {key: value for key, value in config.items() if key.startswith(("kafka.", "sink."))}
                connectors.append({"name": beside["name"], "config": {**common, **beside["config"]}})
            running = stack.enter_context(connect_worker(folder / "worker", own, *connectors))
            running.start()
            return Export(broker, target, running, network)

        yield opened


@pytest.fixture(scope="module")
def _long_lived(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Export]]:
    """The export that outlives the faults, another one after a test that failed."""
    with contextlib.ExitStack() as stack:
        opened: list[Export] = []

        def sound() -> Export:
            if not opened or not opened[-1].is_sound:
                if opened:
                    opened[-1].worker.kill()
                folder = tmp_path_factory.mktemp("long-lived")
                opened.append(stack.enter_context(exports(broker, folder))())
            return opened[-1]

        yield sound


@pytest.fixture
def running(_long_lived: Callable[[], Export]) -> Export:
    """An export that is at work, and was before; every test that uses it ends with ``Export.complete``."""
    export = _long_lived()
    export.is_sound = False
    return export


@pytest.fixture(scope="module")
def how_many(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """How many faults a test makes, from the few of a quick run: ``ACKTRAIL_FAULTS``, else at least a hundred in a run
    of all tests."""

    def number(few: int) -> int:
        return int(os.environ.get("ACKTRAIL_FAULTS") or (max(few, _MANY) if pytestconfig.getoption("--all") else few))

    return number


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Reports what a fault's test counted, at the end of the run."""
    return lambda **found: record_property("faults", ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in found.items()))
