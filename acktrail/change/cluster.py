"""One connection to a cluster for all steps of a command or task."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from acktrail.config import KafkaConfig

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.log_reader import StateTopic


class Cluster(ExitStack):
    """A connection to a cluster that opens at the first use and closes at the end of the block. One thread."""

    def __init__(self, kafka: KafkaConfig) -> None:
        super().__init__()
        self.kafka = kafka

    @cached_property
    def admin(self) -> ShareGroupAdmin:
        """The admin connection. Raises Unreachable, ConfigurationError: as `ShareGroupAdmin`."""
        from acktrail.kafka.admin import ShareGroupAdmin

        return self.enter_context(ShareGroupAdmin(self.kafka))

    def topic(self, name: str) -> StateTopic:
        """Return the topic that has this name now, whose records a `LogReader` reads over the same connection. Raises
        UnknownName, NotAuthorized, Unreachable."""
        from acktrail.errors import UnknownName
        from acktrail.kafka.log_reader import StateTopic

        found = StateTopic(self.admin, name)
        if not found.is_present:
            raise UnknownName("topic", name, known=[each.name for each in self.admin.topics()])
        return found
