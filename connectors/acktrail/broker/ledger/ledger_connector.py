"""``PartitionLedgerSource``: partition counts, leader epochs and log ends of topics, observed on a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.broker.ledger.partition_observation import observe_partitions
from acktrail.config import KafkaConfig
from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail.connect.source_batches import SourceBatch
from acktrail.times import new_run_id

_MS: Final = 1_000


class PartitionLedgerSource(SourceConnector):
    """Keeps the ledger that partition expansions are found in (docs/expansion.md)."""

    description = "Partition counts, leader epochs and log ends of topics, on a schedule."
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(
        ConfigDef(
            [
                ConfigKey(
                    name="interval.ms",
                    type=ConfigType.LONG,
                    default=60_000,
                    validator=Between(least=1_000),
                    documentation="Milliseconds from the beginning of one observation to that of the next: an "
                    "expansion is known to lie between two of them.",
                    group="Observation",
                ),
                ConfigKey(
                    name="topics",
                    type=ConfigType.LIST,
                    default=[],
                    documentation="The topics to observe; none: all that are not internal.",
                    group="Observation",
                ),
            ]
        )
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._kafka = kafka_config(config)
        self._cluster_id: str | None = None

    def start(self) -> None:
        """Ask for the cluster's id."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # one look at the whole cluster is one task
        return [{}]

    def task(self, config: Config) -> PartitionLedgerTask:  # noqa: ARG002  # as above
        topics = tuple(self.config["topics"]) or None
        return PartitionLedgerTask(self._kafka, interval_s=self.config["interval.ms"] / _MS, topics=topics)


class PartitionLedgerTask(SourceTask):
    """One observation every `interval_s` seconds under a run id of its own."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        interval_s: float,
        topics: Sequence[str] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._interval_s, self._topics, self._clock = config, interval_s, topics, clock
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._begins_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._begins_at = self._clock()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next observation when it is time for it."""
        assert self._admin is not None
        now = self._clock()
        if now < self._begins_at:
            self._context.stop.wait(min(timeout_s, self._begins_at - now))
            return ()
        self._begins_at = now + self._interval_s
        return [observe_partitions(self._admin, run_id=new_run_id(), topics=self._topics)]

    def stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
