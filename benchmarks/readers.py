"""Records to columns, each reader as a whole process; records of another log that are taken for the next ones.

Compared with: confluent-kafka's consumer; Kafka's console consumer.

`python readers.py READER SERVERS COUNT` is one reading process: `COUNT` records to columns, then it follows the topic
until its standard input ends; COUNT 0 begins where the logs end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from export import console_consumer, fill, make_topic
from measure import median, run
from steady import cpu_s, written
from table import Row

from acktrail.config import KafkaConfig
from acktrail.format.columns.decoding.batch_columns import batch_columns
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.log_fetcher import LogFetcher
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import STATE_TOPIC
from acktrail_embedded import EmbeddedBroker

_AT_ONCE = 500
"""Messages a call: with 2,000 and 10,000 a record costs 1.5 and 2 times the CPU, half of it for garbage collection."""
_LINGER_S = 1.0
_WARM_UP_S = 5.0


Records = Iterator[pa.Table]


def fetched(kafka: KafkaConfig, topic: str, *, begins_at_end: bool = False, linger_s: float = 0.0) -> Records:
    """The records of all partitions, as acktrail's sources read them; it ends where a log is another one."""
    with ShareGroupAdmin(kafka) as admin:
        log = StateTopic(admin, topic)
        fetcher = LogFetcher(log.client, topic, log.topic_id, linger_s=linger_s, is_compared=True)
        for number, offsets in log.log_offsets().items():
            fetcher.assign(number, (offsets.high_watermark or 0) if begins_at_end else 0)
        while not (found := fetcher.fetch()).events:
            yield batch_columns(found.batches)
            time.sleep(fetcher.pause_s)


def consumed(kafka: KafkaConfig, topic: str, *, begins_at_end: bool = False, linger_s: float = 0.0) -> Records:
    """The same by confluent-kafka, without a group; ends where the consumer reports an error of a partition."""
    waits = {"fetch.wait.max.ms": 1000 * linger_s, "fetch.min.bytes": 1 << 20} if linger_s else {}
    consumer = Consumer(
        {**to_librdkafka(kafka), "group.id": "readers", "enable.auto.commit": False, "auto.offset.reset": "error",
         "isolation.level": "read_committed", "check.crcs": True, "fetch.message.max.bytes": 1 << 20,
         "queued.max.messages.kbytes": 8_192, "fetch.queue.backoff.ms": 10, "log_level": 0, **waits}
    )  # fmt: skip
    logs = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
    for log in logs:
        log.offset = consumer.get_watermark_offsets(log)[1] if begins_at_end else 0
    consumer.assign(logs)
    try:
        while True:
            found = consumer.consume(_AT_ONCE, _LINGER_S)
            if any(message.error() for message in found):
                return
            yield _columns(found)
    finally:
        consumer.close()


def _columns(messages: Sequence[Message]) -> pa.Table:
    read: Sequence[Callable[[Message], Any]] = (
        *(Message.partition, Message.offset, lambda each: each.timestamp()[1], Message.key, Message.value),
    )
    columns = [pa.array(map(field, messages), column.type) for field, column in zip(read, RAW_RECORDS, strict=True)]
    return pa.Table.from_arrays(columns, schema=RAW_RECORDS)


READERS: dict[str, Callable[..., Records]] = {"fetch": fetched, "confluent": consumed}


def compare(
    count: int = 2_000_000,
    rounds: int = 5,
    *,
    rates: Sequence[int] = (0, 100),
    partitions: int = 50,
    seconds: float = 60.0,
) -> list[Row]:
    """The table's rows: a whole topic, in turn; a topic that is followed at some records a second; other logs."""
    return [*_whole(count, rounds), *_followed(rates, partitions, seconds), *_of_other_logs()]


def _whole(count: int, rounds: int) -> Iterator[Row]:
    with EmbeddedBroker() as broker:
        make_topic(broker)
        fill(broker, count)
        commands = [[sys.executable, __file__, name, broker.bootstrap_servers, str(count)] for name in READERS]
        turns = [(*map(run, commands), console_consumer(broker, count)) for _ in range(1 + rounds)]
    ours, theirs, console = (median(each) for each in zip(*turns[1:], strict=True))
    what = f"{count:,} records to columns"
    yield Row(what=what, ours=str(ours), beside=f"confluent-kafka: {theirs}", ratio=ours.ratio(theirs))
    yield Row(what=what, ours=str(ours), beside=f"console consumer: {console}", ratio=ours.ratio(console))


def _followed(rates: Sequence[int], partitions: int, seconds: float) -> Iterator[Row]:
    """CPU of the reading only."""
    with EmbeddedBroker() as broker:
        _create(broker, STATE_TOPIC, partitions)
        for rate in rates:
            ours, theirs = (_share(name, broker.bootstrap_servers, rate, partitions, seconds) for name in READERS)
            what = f"{rate} records/s over {partitions} partitions, linger 1 s, reading only"
            yield Row(what=what, ours=f"{ours:.1f} % of a core", beside=f"confluent-kafka: {theirs:.1f} %")


def _share(name: str, servers: str, rate: int, partitions: int, seconds: float) -> float:
    command = [sys.executable, __file__, name, servers, "0"]
    with written(servers, rate, partitions), subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        time.sleep(min(_WARM_UP_S, seconds))
        before = cpu_s(process.pid)
        time.sleep(seconds)
        used = cpu_s(process.pid) - before
        assert process.stdin is not None
        process.stdin.close()
    return 100 * used / seconds


def _of_other_logs() -> Iterator[Row]:
    """Each reader is at offset 15 when the log becomes another one, which has 30 records by then."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(folder=Path(folder, "broker")) as broker:
        data, copy = Path(folder, "broker", "data"), Path(folder, "copy")
        _create(broker, "recreated")
        _write(broker, "recreated", "kept", 15)
        logs = _read_to_15(broker, "recreated")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.delete_topics(["recreated"]).values():
            future.result(30)
        _create(broker, "recreated")
        _write(broker, "recreated", "other", 30)
        yield _taken("a topic is deleted and created again", logs)

        _create(broker, "restored")
        _write(broker, "restored", "kept", 5)
        broker.stop()
        shutil.copytree(data, copy)
        broker.start()
        _write(broker, "restored", "lost", 10)
        logs = _read_to_15(broker, "restored")
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)  # one that stops in order gives the partition a newer epoch first
        broker.stop()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        broker.start()
        _write(broker, "restored", "other", 25)
        yield _taken("a cluster is restored from an older copy", logs)


def _read_to_15(broker: EmbeddedBroker, topic: str) -> list[Records]:
    logs = [reader(broker.config(), topic) for reader in READERS.values()]
    for log in logs:
        while 14 not in next(log)["offset"].to_pylist():
            pass
    return logs


def _taken(what: str, logs: Sequence[Records]) -> Row:
    """The records that each reader gives until it ends, or has given offset 29."""
    counts = []
    for log in logs:
        counts.append(0)
        for records in log:
            counts[-1] += records.num_rows
            if 29 in records["offset"].to_pylist():
                break
    ours, theirs = counts
    return Row(what=f"{what}: records of the other log", ours=f"{ours} taken", beside=f"confluent-kafka: {theirs}")


def _create(broker: EmbeddedBroker, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)


def _write(broker: EmbeddedBroker, topic: str, word: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, value=f"{word} {number}", partition=0)
    producer.flush()


def _read(name: str, servers: str, count: int) -> None:
    """One reading process."""
    stop, options = threading.Event(), {} if count else {"begins_at_end": True, "linger_s": _LINGER_S}
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    left = count
    for records in READERS[name](KafkaConfig(bootstrap_servers=servers), STATE_TOPIC, **options):
        left -= records.num_rows
        if left <= 0 < count or (not count and stop.is_set()):
            return


if __name__ == "__main__":
    _read(sys.argv[1], sys.argv[2], int(sys.argv[3]))
