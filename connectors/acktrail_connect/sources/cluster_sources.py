"""What connectors that read a cluster have in common: how to reach it, looks at it on a schedule, the dead-letter
topics that groups name (KIP-1191), and whether this principal has the ACLs that it needs. Nothing is changed to find
that out."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.granted_acls import missing_rights
from acktrail.model.acls import Acl, needed
from acktrail_connect.address_keys import kafka_config
from acktrail_connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

_INTERVAL: Final = "interval.ms"
_MS: Final = 1_000


class ClusterSource(SourceConnector):
    """Reaches a cluster, and is one task, however many are wanted."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._kafka = kafka_config(config)

    def start(self) -> None:
        """Ask for the cluster's id."""
        with ShareGroupAdmin(self._kafka) as admin:
            self.cluster_id = admin.cluster_id

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # as the class says
        return [{}]


class ScheduledSource(ClusterSource):
    """Looks at a whole cluster, every ``interval.ms``. `purpose` names the ACLs that a look needs."""

    purpose: ClassVar[str]

    def acls(self, topics: Sequence[str] = ()) -> tuple[Acl, ...]:
        """What a look at `topics` (none named: at all) needs."""
        return needed(self.purpose, (), topics)

    def seconds(self, key: str = _INTERVAL) -> float:
        """What `key` has in milliseconds."""
        found: int = self.config[key]
        return found / _MS


class ScheduledTask(SourceTask):
    """Looks at its start, then every `interval_s` seconds from the beginning of one look to that of the next. A time
    that was missed is left out. `acls`: without one of them a look leaves something out, and the status says which."""

    def __init__(self, config: KafkaConfig, *, interval_s: float, acls: Sequence[Acl] = ()) -> None:
        self._config, self._interval_s = config, interval_s
        self._acls = acls
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._began_at = self._begins_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._begins_at = time.monotonic()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next look when it is time for it."""
        assert self._admin is not None
        now = time.monotonic()
        if now < self._begins_at:
            self._context.stop.wait(min(timeout_s, self._begins_at - now))
            return ()
        self._began_at, self._begins_at = now, now + self._interval_s
        self.limits = missing_rights(self._admin, self._acls)
        return [self.look(self._admin)]

    @abstractmethod
    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        """Look now."""

    def stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
