"""One connection to a cluster for all steps of a command or task."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from acktrail.config import KafkaConfig

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.state.state_lookup import StateLookup
    from acktrail.broker.state.state_topic import StateTopic


class Cluster:
    """Opens its admin connection, and its consumer of the state topic, at the first use; closes both at the end of the
    block. One thread."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self.kafka = kafka
        self._lookup: tuple[str, StateLookup] | None = None

    @cached_property
    def admin(self) -> ShareGroupAdmin:
        """The admin connection.

        Raises:
            Unreachable, ConfigurationError: as `ShareGroupAdmin`.
        """
        from acktrail.broker.admin import ShareGroupAdmin

        return ShareGroupAdmin(self.kafka)

    def state_lookup(self, topic: StateTopic) -> StateLookup:
        """The reader of this incarnation of the state topic."""
        from acktrail.broker.state.state_lookup import StateLookup

        if self._lookup is None or self._lookup[0] != topic.topic_id:
            self._close_lookup()
            self._lookup = (topic.topic_id, StateLookup(self.kafka, topic).__enter__())
        return self._lookup[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_lookup()
        if "admin" in self.__dict__:
            self.admin.close()

    def _close_lookup(self) -> None:
        if self._lookup is not None:
            self._lookup[1].__exit__(None, None, None)
            self._lookup = None
