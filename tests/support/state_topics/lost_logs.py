"""State logs that are lost while a broker is down, and written anew."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

from servers.workload import Workload, until
from state_topics.filled_topic import fill, read_all

from acktrail.config import TablesConfig
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import ExportSummary, export
from acktrail_embedded import EmbeddedBroker

PARTITIONS: Final = 3


def renew(workload: Workload) -> None:
    """Delete the state topic if it is there, and create it again."""

    def is_there() -> bool:
        return STATE_TOPIC in workload.admin.list_topics(timeout=120).topics

    if is_there():
        workload.delete_topic(STATE_TOPIC)
        until(lambda: not is_there(), what="deletion")
    workload.create_topic(STATE_TOPIC, PARTITIONS)
    until(is_there, what="creation")


def write(broker: EmbeddedBroker, name: str, counts: dict[int, int]) -> None:
    fill(broker, ((p, b"key", b"%s %d" % (name.encode(), n)) for p, count in counts.items() for n in range(count)))


def export_state(broker: EmbeddedBroker, tables: TablesConfig) -> ExportSummary:
    return export(broker.config(), tables, asks_brokers=False)


def lose(broker: EmbeddedBroker, *partitions: int, halved: tuple[int, ...] = ()) -> None:
    """The disk with these logs is lost while the broker is down; half of the bytes of those `halved` stays."""
    broker.stop()
    _lose(broker, partitions, halved)
    broker.start()


def _lose(broker: EmbeddedBroker, partitions: tuple[int, ...], halved: tuple[int, ...]) -> None:
    for partition in partitions:
        shutil.rmtree(_data(broker) / f"{STATE_TOPIC}-{partition}")
    if halved:
        (_data(broker) / ".kafka_cleanshutdown").unlink()  # the broker looks where each log ends
    for partition in halved:
        for segment in (_data(broker) / f"{STATE_TOPIC}-{partition}").glob("*.log"):
            segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def back_up(broker: EmbeddedBroker, copy: Path) -> None:
    """Copy the log folder of the broker, which is down meanwhile."""
    broker.stop()
    shutil.copytree(_data(broker), copy)
    broker.start()


def restore(broker: EmbeddedBroker, copy: Path, *, lost: tuple[int, ...] = (), halved: tuple[int, ...] = ()) -> None:
    """Put a copy of the log folder in its place: what came after it is gone, and epochs and offsets come again. The
    copy has lost these logs, as ``lose`` does."""
    broker.stop()
    shutil.rmtree(_data(broker))
    shutil.copytree(copy, _data(broker))
    _lose(broker, lost, halved)
    broker.start()


def _data(broker: EmbeddedBroker) -> Path:
    return Path(broker.folder) / "data"


Contents = Counter[tuple[Any, ...]]


def contents_in_kafka(broker: EmbeddedBroker) -> Contents:
    """How often the state topic has each record: partition, time, key and value, without its offset."""
    return Counter((r.state_partition, r.timestamp_ms, r.key, r.value) for r in read_all(broker))


def contents_in_tables(tables: TablesConfig) -> Contents:
    """The same of the tables."""
    rows = Tables(tables).read("state_records", columns=["state_partition", "timestamp_ms", "key", "value"])
    return Counter(zip(*rows.to_pydict().values(), strict=True))
