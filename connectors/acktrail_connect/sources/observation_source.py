"""``ShareGroupOffsetsSource``: groups, start offsets, lag and log offsets, observed on a schedule; and share groups as
gauges for Prometheus (`acktrail.serving.group_gauges`), from one sample of the brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl, Purpose
from acktrail.model.log_positions import SourcePartition, state_source_partition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.serving.group_gauges import SeenGroup, SeenQueue, gauges_of
from acktrail.times import new_run_id
from acktrail_connect.address_keys import KAFKA_KEYS
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, Gauge
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.cluster_sources import ScheduledSource, ScheduledTask
from acktrail_connect.sources.observation import observe

_WAIT: Final = "state.wait.ms"


class ShareGroupOffsetsSource(ScheduledSource):
    """Observes the brokers: a sample before and one after the state topic is exported, as a reconciliation needs."""

    purpose = Purpose.OFFSETS
    description = "Groups, start offsets, lag and log offsets as brokers describe them, on a schedule."
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(keys_in(__package__, "offsets_keys.toml"))

    def task(self, config: Config) -> ObservationTask:  # noqa: ARG002  # there is one task
        return ObservationTask(self._kafka, interval_s=self.seconds(), wait_s=self.seconds(_WAIT), acls=self.acls())


class ObservationTask(ScheduledTask):
    """Two samples under a run id of their own. The second waits, at most `wait_s`, until the exported positions have
    reached the ends of the state topic's logs that the first one saw."""

    def __init__(self, config: KafkaConfig, *, interval_s: float, wait_s: float, acls: Sequence[Acl] = ()) -> None:
        super().__init__(config, interval_s=interval_s, acls=acls)
        self._wait_s = wait_s
        self._run_id: str | None = None
        self._ends: Mapping[SourcePartition, int] = {}
        self._gauges: Sequence[Gauge] = ()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next sample when it is time for it."""
        assert self._admin is not None
        if self._run_id is None:
            return super().poll(timeout_s)
        if time.monotonic() - self._began_at < self._wait_s and not self._is_exported():
            self._context.stop.wait(timeout_s)
            return ()
        batch = observe(self._admin, run_id=self._run_id, phase="after")
        self._run_id = None
        self._gauges = group_gauges(batch, time.time())
        return [batch]

    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        """The first sample."""
        self._run_id = new_run_id()
        batch = observe(admin, run_id=self._run_id, phase="before")
        self._ends = self._log_ends(admin.cluster_id, batch)
        return batch

    def gauges(self) -> Sequence[Gauge]:
        """The newest sample's groups."""
        return self._gauges

    def _is_exported(self) -> bool:
        reached = self._context.committed(list(self._ends))
        return all(_number(reached.get(each)) >= end for each, end in self._ends.items())

    @staticmethod
    def _log_ends(cluster_id: str, batch: SourceBatch) -> dict[SourcePartition, int]:
        """The end of each log of the state topic that has records, as the sample has it."""
        rows = batch.rows["offset_observations"]
        logs = rows.filter(pc.and_(pc.equal(rows["topic"], STATE_TOPIC), pc.greater(rows["log_end_offset"], 0)))
        return {
            state_source_partition(cluster_id, log["topic_id"], log["partition"]): log["log_end_offset"]
            for log in logs.select(["topic_id", "partition", "log_end_offset"]).to_pylist()
        }


def _number(position: object) -> int:
    return position if isinstance(position, int) else -1


def group_gauges(batch: SourceBatch, at: float) -> tuple[Gauge, ...]:
    """The gauges of an observation's batch, taken `at` seconds since the epoch."""
    topics = {row["topic_id"]: row["topic"] for row in batch.rows["topics"].to_pylist()}
    groups = [
        SeenGroup(row["group_id"], row["group_state"], row["members"], row["error_code"])
        for row in batch.rows["group_observations"].to_pylist()
    ]
    queues = [
        SeenQueue(
            row["group_id"],
            row["topic"] or topics.get(row["topic_id"], row["topic_id"] or ""),
            row["partition"],
            row["lag"],
            row["start_offset"],
        )
        for row in batch.rows["offset_observations"].to_pylist()
        if row["group_id"] is not None
    ]
    found = gauges_of(groups, queues, at)
    return tuple(Gauge(name=each.name, about=each.about, value=each.value, labels=each.labels) for each in found)
