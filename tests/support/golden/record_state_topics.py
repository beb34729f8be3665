"""Record what real brokers write to their state topic: one dump a release, in the folder ``state_topic``.

::

    PYTHONPATH=tests/support python tests/support/golden/record_state_topics.py [VERSION ...]

Consumers of two groups accept, release and reject records of two topics; start offsets are reset where the release can
do that, one topic is deleted, the broker is started anew. Snapshots and cold snapshots come every few updates or
seconds instead of every few minutes; nothing is pruned.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import AcknowledgeType
from samples.dump_lines import dump_line
from servers.workload import Workload, until
from state_topics.filled_topic import read_all

from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_record import decode
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset, Outcome
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.installation import RELEASES

FOLDER: Final = Path(__file__).parent / "state_topic"
GROUPS: Final = ("orders:eu", 'prüfen "💸" ../')
GROUPS_OF_4_1: Final = ("orders", GROUPS[1])
"""Kafka before 4.2.1 finds no coordinator for a group with a colon (KAFKA-20183)."""
TOPICS: Final = ("orders", "payments")
PROPERTIES: Final = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "6",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1500",
    "share.coordinator.state.topic.prune.interval.ms": "3600000",
}
_MEMBERS: Final = 12
_PATIENCE_S: Final = 12.0
_TYPES: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


def main(versions: list[str]) -> None:
    """Write the dump of every release asked for, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for version in versions or sorted(RELEASES):
        records = _recorded(version)
        text = "".join(dump_line(record) + "\n" for record in records)
        file = FOLDER / f"{version}.jsonl.gz"
        file.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
        sys.stdout.write(f"{version}: {len(records)} records, {file.stat().st_size} bytes\n")


def _recorded(version: str) -> list[RawRecord]:
    groups = GROUPS_OF_4_1 if version.startswith("4.1") else GROUPS
    with tempfile.TemporaryDirectory() as folder:
        with EmbeddedBroker(version, folder=Path(folder), properties=PROPERTIES) as broker:
            workload = Workload(broker.config())
            for topic in TOPICS:
                workload.create_topic(topic, 2)
            _work(workload, groups, rounds=12)
            _reset(broker, groups[0])
            workload.delete_topic(TOPICS[1])
            until(lambda: any(record.value is None for record in read_all(broker)), what="a tombstone")
        with EmbeddedBroker(version, folder=Path(folder), properties=PROPERTIES) as broker:
            workload = Workload(broker.config())
            _work(workload, groups, rounds=8, topics=TOPICS[:1])
            until(lambda: any(map(_is_cold, read_all(broker))), what="a cold snapshot")
            _work(workload, groups, rounds=8, topics=TOPICS[:1])
            return read_all(broker)


def _work(workload: Workload, groups: tuple[str, ...], *, rounds: int, topics: tuple[str, ...] = TOPICS) -> None:
    for topic in topics:
        for group in groups:
            _consume(workload, group, topic, rounds)


def _consume(workload: Workload, group: str, topic: str, rounds: int) -> None:
    """Records come and are settled from the last to the first, each as its offset's turn is, in every other round with
    a commit of its own. A member that gets nothing makes room for another: brokers of release 4.1 break on some ids.
    """
    done = 0
    for _ in range(_MEMBERS):
        with workload.share_consumer(group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:
            last = time.monotonic()
            while done < rounds and time.monotonic() - last < _PATIENCE_S:
                workload.produce(topic, 3, done % 2)
                messages = [message for message in consumer.poll(0.5) or () if message.error() is None]
                for message in reversed(messages):
                    turn = message.offset() * 7 + message.delivery_count()
                    consumer.acknowledge(message, _TYPES[turn % len(_TYPES)])
                    if done % 2:
                        consumer.commit_sync()
                if messages:
                    consumer.commit_sync()
                    done, last = done + 1, time.monotonic()
        if done >= rounds:
            return
    raise AssertionError(f"{done} of {rounds} rounds of {group!r}")


def _reset(broker: EmbeddedBroker, group: str) -> None:
    with ShareGroupAdmin(broker.config()) as admin:
        if not admin.capabilities().resets_share_groups:
            return
        offsets = [NewStartOffset(topic=TOPICS[0], partition=number, start_offset=number * 9) for number in range(2)]
        results = until(lambda: admin.alter_offsets(group, offsets), what="an empty group")
        assert all(result.outcome is Outcome.DONE for result in results), results


def _is_cold(record: RawRecord) -> bool:
    if record.key is None or record.value is None or record.key[1]:
        return False
    snapshot = decode(record.key, record.value)
    return getattr(snapshot, "create_timestamp_ms", 0) != getattr(snapshot, "write_timestamp_ms", 0)


if __name__ == "__main__":
    main(sys.argv[1:])
