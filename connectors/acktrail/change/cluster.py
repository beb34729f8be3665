"""One connection to a cluster for all steps of a command or task."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from acktrail.config import KafkaConfig

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.log_reader import StateTopic
    from acktrail.kafka.state_lookup import StateLookup


class Cluster(ExitStack):
    """Opens its admin connection at the first use; closes it at the end of the block. One thread."""

    def __init__(self, kafka: KafkaConfig) -> None:
        super().__init__()
        self.kafka = kafka
        self._lookups: dict[str, StateLookup] = {}

    @cached_property
    def admin(self) -> ShareGroupAdmin:
        """The admin connection. Raises Unreachable, ConfigurationError: as `ShareGroupAdmin`."""
        from acktrail.kafka.admin import ShareGroupAdmin

        return self.enter_context(ShareGroupAdmin(self.kafka))

    def state_lookup(self, topic: StateTopic) -> StateLookup:
        """The reader of this incarnation of the state topic."""
        from acktrail.kafka.state_lookup import StateLookup

        if topic.topic_id not in self._lookups:
            self._lookups[topic.topic_id] = StateLookup(topic)
        return self._lookups[topic.topic_id]
