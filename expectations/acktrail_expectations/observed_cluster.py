"""The cluster as one observation shows it, as far as expectations depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.batches import DURABLE_STATES, DeliveryState
from acktrail.model.share_partition import STATE_TOPIC

DEFAULT_DELIVERY_COUNT_LIMIT: Final = 5
"""``group.share.delivery.count.limit`` of a broker that was not configured."""

_LIMIT_CONFIG: Final = "share.delivery.count.limit"
_LOCK_LIMIT_CONFIG: Final = "share.partition.max.record.locks"
_DEAD_LETTER_CONFIG: Final = "errors.deadletterqueue.topic.name"

MOST_UPDATES: Final = 500
"""The highest that ``share.coordinator.snapshot.update.records.per.snapshot`` can be set to, and its default."""

_ALL_STATES: Final = tuple(sorted(int(state) for state in DURABLE_STATES))
_WITHOUT_ARCHIVING: Final = tuple(state for state in _ALL_STATES if state != DeliveryState.ARCHIVING)

_LOGS: Final = pa.schema(
    {"topic_id": pa.string(), "partition": pa.int32(), "log_start_offset": pa.int64(), "log_end_offset": pa.int64()}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """What a run knows of its cluster.

    `delivery_states`: numbers that its release may persist. By group id, where the cluster reports them (Kafka 4.3 and
    later): `delivery_count_limits`, and `lock_limits`, the records that may be in flight in a share partition.
    `has_dead_letters`: it is known to be Kafka 4.4 or later. `state_partition_count` None: not known. `topics`: names
    by id. `logs`: one row a topic partition, its highest log start and log end of the observation.
    """

    delivery_states: tuple[int, ...] = _ALL_STATES
    delivery_count_limits: Mapping[str, int] = field(default_factory=dict)
    lock_limits: Mapping[str, int] = field(default_factory=dict)
    has_dead_letters: bool = False
    state_partition_count: int | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    logs: pa.Table = field(default_factory=_LOGS.empty_table)

    def delivery_count_limit(self, group_id: str | None) -> int:
        """The limit of a group, the broker's default where it is not known."""
        return self.delivery_count_limits.get(group_id or "", DEFAULT_DELIVERY_COUNT_LIMIT)

    @property
    def most_updates(self) -> int:
        """Updates that may follow a snapshot: one more than configured before Kafka 4.4 (pull request 21426)."""
        return MOST_UPDATES if self.has_dead_letters else MOST_UPDATES + 1


def observed_cluster(groups: pa.Table, offsets: pa.Table) -> ObservedCluster:
    """The cluster in one run's rows of ``GROUP_OBSERVATIONS`` and ``OFFSET_OBSERVATIONS``.

    Archiving (3) comes with the dead letter queue of Kafka 4.4: a release that has it has its group configuration.
    Where no group's configuration could be read, archiving is allowed. Of a limit that changed during the observation
    the greater one counts.
    """
    rows = groups.select(["group_id", "configs"]).to_pylist()
    configs = [(row["group_id"], dict(row["configs"])) for row in rows if row["configs"]]
    has_dead_letters = any(_DEAD_LETTER_CONFIG in names for _, names in configs)
    archives = not configs or has_dead_letters
    of_logs = offsets.filter(pc.is_null(offsets["group_id"]))
    state_partitions = of_logs.filter(pc.equal(of_logs["topic"], STATE_TOPIC))["partition"].unique()
    by_partition = of_logs.filter(pc.is_valid(of_logs["topic_id"])).group_by(["topic_id", "partition"])
    ends = by_partition.aggregate([("log_start_offset", "max"), ("log_end_offset", "max")])
    return ObservedCluster(
        delivery_states=_ALL_STATES if archives else _WITHOUT_ARCHIVING,
        delivery_count_limits=_limits(configs, _LIMIT_CONFIG),
        lock_limits=_limits(configs, _LOCK_LIMIT_CONFIG),
        has_dead_letters=has_dead_letters,
        state_partition_count=len(state_partitions) or None,
        topics=_names(of_logs),
        logs=ends.rename_columns(_LOGS.names).cast(_LOGS),
    )


def _limits(configs: Iterable[tuple[str, Mapping[str, str]]], name: str) -> dict[str, int]:
    """The greatest number that each group has under `name`."""
    limits: dict[str, int] = {}
    for group_id, names in configs:
        text = names.get(name, "")
        if text.isdecimal():
            limits[group_id] = max(int(text), limits.get(group_id, 0))
    return limits


def _names(of_logs: pa.Table) -> dict[str, str]:
    rows = of_logs.group_by(["topic_id", "topic"]).aggregate([]).to_pylist()
    return {row["topic_id"]: row["topic"] for row in rows if row["topic_id"] is not None and row["topic"] is not None}
