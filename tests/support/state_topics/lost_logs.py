"""State logs that are lost while a broker is down, and written anew."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from servers.workload import Workload, until
from state_topics.filled_topic import fill

from acktrail.config import TablesConfig
from acktrail.export.export_run import ExportSummary, export
from acktrail.model.share_partition import STATE_TOPIC
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


def lose(broker: EmbeddedBroker, *partitions: int) -> None:
    """The disk with these logs is lost while the broker is down."""
    broker.stop()
    for partition in partitions:
        shutil.rmtree(Path(broker.folder) / "data" / f"{STATE_TOPIC}-{partition}")
    broker.start()
