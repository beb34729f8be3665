"""Sources that look at a cluster on a schedule: the connector, and its task, which waits for the next look."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from acktrail.config import KafkaConfig
from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail.connect.source_batches import SourceBatch
from acktrail.kafka.acl_probes import missing_rights
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.model.acls import Acl, needed

OBSERVATION: Final = "Observation"
"""The group of the keys about looks."""
_INTERVAL: Final = "interval.ms"
_MS: Final = 1_000


def scheduled_keys(interval_ms: int, about: str, *others: ConfigKey) -> ConfigDef:
    """The keys of a cluster and of a schedule, and `others`. `about`: what the interval, by default `interval_ms`, is
    for."""
    interval = ConfigKey(
        name=_INTERVAL,
        type=ConfigType.LONG,
        default=interval_ms,
        validator=Between(least=1_000),
        documentation=about,
        group=OBSERVATION,
    )
    return KAFKA_KEYS.with_keys(ConfigDef([interval, *others]))


class ScheduledSource(SourceConnector):
    """One look at a whole cluster is one task, however many are wanted. `config_def` is of ``scheduled_keys``;
    `purpose` names the ACLs that a look needs."""

    purpose: ClassVar[str]

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

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # one look is one task
        return [{}]

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

    def __init__(
        self,
        config: KafkaConfig,
        *,
        interval_s: float,
        acls: Sequence[Acl] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._interval_s, self._clock = config, interval_s, clock
        self._acls, self._limits = acls, ""
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._began_at = self._begins_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._begins_at = self._clock()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next look when it is time for it."""
        assert self._admin is not None
        now = self._clock()
        if now < self._begins_at:
            self._context.stop.wait(min(timeout_s, self._begins_at - now))
            return ()
        self._began_at, self._begins_at = now, now + self._interval_s
        self._limits = missing_rights(self._admin, self._acls)
        return [self.look(self._admin)]

    @property
    def limits(self) -> str:
        return self._limits

    @abstractmethod
    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        """Look now."""

    def stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
