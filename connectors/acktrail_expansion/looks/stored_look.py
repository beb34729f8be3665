"""One look at partitions and groups, stored in the tables of the ledger."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acktrail.broker.client.error_codes import UNKNOWN_TOPIC_OR_PARTITION, error_for
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.times import new_run_id

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.descriptions import TopicDescription

_NEAREST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLook:
    """What one look has, counted. `topics_not_described` and `partitions_not_asked` have an error instead of numbers,
    `topics_straddling` changed during the look. `groups_not_asked`: their coordinators gave an error. `positions` are
    rows: share groups are read twice."""

    run_id: str
    topics: int
    topics_not_described: int
    topics_straddling: int
    partitions: int
    partitions_not_asked: int
    groups: int
    groups_not_asked: int
    positions: int


def known_topic(admin: ShareGroupAdmin, name: str) -> TopicDescription:
    """A topic that this principal may describe. Raises UnknownName with the nearest names, NotAuthorized."""
    (topic,) = admin.topics([name])
    if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        known = [each.name for each in admin.topics() if not each.is_internal]
        raise UnknownName("topic", name, nearest=difflib.get_close_matches(name, known, n=_NEAREST))
    if topic.error_code:
        raise error_for(topic.error_code, None, operation="DESCRIBE", kind="topic", name=name)
    return topic


def take_look(
    admin: ShareGroupAdmin, tables: TablesConfig, *, topics: Sequence[str] | None = None, run_id: str | None = None
) -> StoredLook:
    """Observe `topics` (None: all that are not internal) and append the rows to ``partition_observations`` and
    ``group_positions``. A second look under the same `run_id` is not stored.

    Raises:
        Unreachable, RetryableError: no broker answered. ForeignCluster: the tables are another cluster's.
        OutcomeUnknown, ConfigurationError: the storage failed; look again.
    """
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.exported.delta_sink import DeltaSink
    from acktrail_expansion.looks.partition_observation import OBSERVATIONS, POSITIONS, observe_partitions

    name = run_id or new_run_id()
    batch = observe_partitions(admin, run_id=name, topics=topics)
    sink = DeltaSink(Tables(tables), cluster_id=admin.cluster_id, run_id=name)
    sink.put(batch)
    sink.flush()
    partitions = batch.rows[OBSERVATIONS].to_pylist()
    positions = batch.rows[POSITIONS].to_pylist()
    return _counted(name, partitions, positions)


def _counted(run_id: str, partitions: Sequence[dict[str, Any]], positions: Sequence[dict[str, Any]]) -> StoredLook:
    described = [row for row in partitions if row["partition"] is not None]
    return StoredLook(
        run_id=run_id,
        topics=len({row["topic"] for row in partitions}),
        topics_not_described=len(partitions) - len(described),
        topics_straddling=len({row["topic"] for row in described if row["consistency"] == "straddles"}),
        partitions=len(described),
        partitions_not_asked=sum(bool(row["error_code"]) for row in described),
        groups=len({row["group_id"] for row in positions}),
        groups_not_asked=len({row["group_id"] for row in positions if row["partition"] is None}),
        positions=sum(row["partition"] is not None for row in positions),
    )
