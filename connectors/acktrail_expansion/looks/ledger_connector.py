"""``PartitionLedgerSource``: partition counts, leader epochs and log ends of topics, observed on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from acktrail.connect.config_def import ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config
from acktrail.connect.source_batches import SourceBatch
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.scheduled_source import OBSERVATION, ScheduledSource, ScheduledTask, scheduled_keys
from acktrail.times import new_run_id
from acktrail_expansion.expansion_acls import LOOK
from acktrail_expansion.looks.partition_observation import observe_partitions


class PartitionLedgerSource(ScheduledSource):
    """Keeps the ledger that partition expansions are found in (docs/expansion.md)."""

    purpose = LOOK
    description = "Partition counts, leader epochs and log ends of topics, on a schedule."
    config_def: ClassVar[ConfigDef] = scheduled_keys(
        60_000,
        "Milliseconds from the beginning of one observation to that of the next: an expansion is known to lie between "
        "two of them.",
        ConfigKey(
            name="topics",
            type=ConfigType.LIST,
            default=[],
            documentation="The topics to observe; none: all that are not internal.",
            group=OBSERVATION,
        ),
    )

    def task(self, config: Config) -> PartitionLedgerTask:  # noqa: ARG002  # there is one task
        topics = tuple(self.config["topics"])
        task = PartitionLedgerTask(self._kafka, interval_s=self.seconds(), acls=self.acls(topics))
        task.topics = topics or None
        return task


class PartitionLedgerTask(ScheduledTask):
    """Each look has a run id of its own."""

    topics: Sequence[str] | None = None
    """None: all that are not internal."""

    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        return observe_partitions(admin, run_id=new_run_id(), topics=self.topics)
