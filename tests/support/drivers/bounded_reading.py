"""A connector that reads topics, run to the end of its logs without a worker."""

from __future__ import annotations

from collections.abc import Mapping

from servers.workload import until

from acktrail.config import KafkaConfig
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.contract import SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

__all__ = ["drain", "everything", "keys"]


def keys(kafka: KafkaConfig, **others: str) -> dict[str, str]:
    """A source's configuration for that cluster."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "linger.ms": "0",
        **{f"kafka.{name}": str(value) for name, value in kafka.properties.items()},
        **others,
    }


def drain(task: SourceTask, context: SourceTaskContext | None = None) -> list[SourceBatch]:
    """What a bounded task has to give, to the end of its logs; it is started with `context`, or was started before."""
    batches: list[SourceBatch] = []
    try:
        if context is not None:
            task.start(context)
        until(lambda: batches.extend(task.poll(0.2)) or task.is_finished, what="the end of the logs", timeout_s=300)
        ended, count = task.partitions
        assert ended == count
        assert not task.poll(0)
    finally:
        task.stop()
    return batches


def everything(
    connector: SourceConnector, positions: Mapping[SourcePartition, Position]
) -> tuple[list[SourceBatch], dict[str, float]]:
    """What a bounded task gives, and its gauges."""
    connector.start()
    (config,) = connector.task_configs(1)
    task = connector.task(config)
    batches = drain(task, SourceTaskContext(position=positions.get))
    return batches, {each.labels.get("status", each.name): each.value for each in task.gauges()}
