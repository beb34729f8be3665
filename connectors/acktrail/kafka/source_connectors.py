"""What connectors that read a cluster have in common: how to reach it, looks at it on a schedule, the dead-letter
topics that groups name (KIP-1191), and whether this principal has the ACLs that it needs. Nothing is changed to find
that out."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.config import KafkaConfig
from acktrail.connect.config_def import keys_in, under
from acktrail.connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail.connect.source_batches import SourceBatch
from acktrail.format.wire.dead_letter_headers import TOPIC_OF_GROUP, TOPIC_PREFIX, dropped_letters
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED, error_for
from acktrail.kafka.describe_configs import broker_config
from acktrail.model.acls import ALL, Acl, needed

_PREFIX: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_TIMEOUT: Final = "request.timeout.ms"
_INTERVAL: Final = "interval.ms"
_MS: Final = 1_000

KAFKA_KEYS: Final = keys_in(__package__, "cluster_keys.toml")


def kafka_config(config: Mapping[str, Any]) -> KafkaConfig:
    """How to reach the cluster of a connector's parsed configuration."""
    own = under(config, _PREFIX)
    servers, timeout = own.pop(_SERVERS), own.pop(_TIMEOUT)
    properties = {name: str(value) for name, value in own.items()}
    return KafkaConfig(bootstrap_servers=servers, properties=properties, request_timeout_ms=timeout)


class ClusterSource(SourceConnector):
    """Reaches a cluster, and is one task, however many are wanted."""

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
        self._acls, self._limits = acls, ""
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


def granted(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> dict[Acl, bool | None]:
    """Whether this principal has each of them; None: not known, since nothing of this name is there.

    The right on all groups or topics shows in the answer about a name that nothing has: a refusal, or that it is not
    there. READ on all of them is compared with every group or topic that is there as well."""
    return {acl: _is_granted(admin, acl) for acl in acls}


def missing_rights(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> str:
    """A sentence about those of `acls` that this principal lacks, for a connector's status; empty: none is known to be
    missing."""
    missing = [str(acl) for acl, is_there in granted(admin, acls).items() if is_there is False]
    return f"not authorized: missing {', '.join(missing)}; what only they show is left out" if missing else ""


def _is_granted(admin: ShareGroupAdmin, acl: Acl) -> bool | None:
    if acl.kind == "transactional-id":
        return None  # only a transaction shows whether its id may be used
    is_group, is_all = acl.kind == "group", acl.name == ALL
    if acl.operation == "DESCRIBE" or (acl.operation == "DESCRIBE_CONFIGS" and is_group):
        return _is_shown(admin, acl, f"acktrail-doctor-{secrets.token_hex(8)}" if is_all else acl.name)
    if is_all and not _is_granted(admin, Acl("DESCRIBE", acl.kind, ALL)):
        return False
    if is_group:
        names = [group.group_id for group in admin.list_groups()] if is_all else [acl.name]
        rights = admin.rights(names).groups
    else:
        names = [topic.name for topic in admin.topics() if not topic.is_internal] if is_all else [acl.name]
        rights = admin.rights((), names).topics
    known = [operations for operations in rights.values() if operations is not None]
    return all(acl.operation in operations for operations in known) if known else None


def _is_shown(admin: ShareGroupAdmin, acl: Acl, name: str) -> bool | None:
    """Whether a question about `name` is answered, also by that it is not there."""
    if acl.kind == "topic":
        return admin.topics([name])[0].error_code != TOPIC_AUTHORIZATION_FAILED
    if acl.operation == "DESCRIBE":
        return admin.describe_groups([name])[0].error_code != GROUP_AUTHORIZATION_FAILED
    code = admin.group_configs([name])[0].error_code
    return code == NONE if code in (NONE, GROUP_AUTHORIZATION_FAILED) else None


def dead_letter_topics(admin: ShareGroupAdmin) -> dict[str, str]:
    """The dead-letter topics that the share groups of a cluster name now, by group, whether they exist or not. A group
    that this principal may not DESCRIBE is not seen. Raises NotAuthorized when DESCRIBE_CONFIGS is missing on one that
    is."""
    named: dict[str, str] = {}
    for group in admin.group_configs([listed.group_id for listed in admin.list_groups()]):
        if group.configs is None:
            raise error_for(
                group.error_code, group.error, operation="DESCRIBE_CONFIGS", kind="group", name=group.group_id
            )
        if group.configs.get(TOPIC_OF_GROUP):
            named[group.group_id] = group.configs[TOPIC_OF_GROUP]
    return named


def dropped_by_group(admin: ShareGroupAdmin, topics: Mapping[str, str]) -> dict[str, str]:
    """Why brokers drop the dead letters of groups that name these `topics`, by group; none where they do not."""
    prefix = broker_config(client_of(admin), TOPIC_PREFIX) if topics else None
    why = {group_id: dropped_letters(topic, prefix) for group_id, topic in sorted(topics.items())}
    return {group_id: text for group_id, text in why.items() if text is not None}
