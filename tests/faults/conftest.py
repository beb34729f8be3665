"""A broker to break, a state topic that is written all the time, and a worker that exports it."""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from broker.workload import until
from confluent_kafka import KafkaException, Producer
from servers.connect_worker import ConnectWorker, connect_worker
from servers.real_broker import kill
from state_topics.export_checker import check_nothing_lost_or_doubled
from state_topics.filled_topic import STATE_TOPIC, create_state_topic

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

PARTITIONS: Final = 5

Pair = tuple[bytes | None, bytes | None]


def good(number: int) -> Pair:
    """A snapshot of one of some groups."""
    group_id = b"group-%d" % (number % 7)
    key = struct.pack(">hh", 0, len(group_id)) + group_id + bytes(15) + b"\1" + struct.pack(">i", number % 3)
    head = struct.pack(">hiiiq", 0, number, 1, 1, number)
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
    """A worker that exports the state topic of `broker` into `tables`."""

    broker: EmbeddedBroker
    tables: TablesConfig
    worker: ConnectWorker

    def rows(self) -> int:
        store = Tables(self.tables)
        return int(store.read("state_records", columns=["offset"]).num_rows) if store.exists("state_records") else 0

    def grows(self, by: int = 1) -> None:
        """Wait until there are more rows."""
        before = self.rows()
        until(lambda: self.rows() >= before + by, what="more rows")

    def is_complete(self) -> bool:
        """Whether the tables have reached the ends of the logs."""
        try:
            check_nothing_lost_or_doubled(self.broker, self.tables)
        except AssertionError:
            return False
        return True

    def finish(self) -> int:
        """Let the worker reach the end, stop it, and prove that nothing is lost or doubled; how many rows there are."""
        until(self.is_complete, what="a complete export")
        assert self.worker.stop() == 0
        return check_nothing_lost_or_doubled(self.broker, self.tables)

    def outages(self) -> tuple[int, int]:
        """How many lines said that an outage began, and that one ended."""
        said = self.worker.said
        return sum("pauses, trying again" in line for line in said), sum("continues after" in line for line in said)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    quickly = {
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
        "log.segment.delete.delay.ms": "0",
    }
    with EmbeddedBroker(properties=quickly) as running:
        create_state_topic(running, PARTITIONS)
        yield running


@pytest.fixture
def export(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens an export into tables of its own: keys of the worker and of the connector can be given."""
    with contextlib.ExitStack() as stack:

        def opened(
            tables: TablesConfig | None = None,
            *,
            name: str = "worker",
            worker: Mapping[str, object] | None = None,
            **keys: str,
        ) -> Export:
            target = tables or TablesConfig(uri=str(tmp_path / "tables"))
            options = {f"sink.option.{key}": value for key, value in target.options.items()}
            config = {
                "connector.class": "ShareGroupStateSource",
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "kafka.request.timeout.ms": "3000",
                "sink.tables": target.uri,
                "flush.interval.ms": "100",
                "linger.ms": "20",
                "errors.retry.delay.max.ms": "1000",
                **options,
                **{key.replace("_", "."): value for key, value in keys.items()},
            }
            own = {"rest.listener": "", **(worker or {})}
            running = stack.enter_context(connect_worker(tmp_path / name, own, {"name": "state", "config": config}))
            running.start()
            return Export(broker, target, running)

        yield opened


__all__ = ["Export", "Writer", "kill", "writing"]
