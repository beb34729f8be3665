"""The cluster as one observation shows it, as far as expectations depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from acktrail.model.delivery import DURABLE_STATES, DeliveryState

DEFAULT_DELIVERY_COUNT_LIMIT: Final = 5
"""``group.share.delivery.count.limit`` of a broker that was not configured."""

HIGHEST_DELIVERY_COUNT_LIMIT: Final = 25
"""The highest that ``group.share.max.delivery.count.limit`` can be set to."""

STATE_TOPIC: Final = "__share_group_state"

_LIMIT_CONFIG: Final = "share.delivery.count.limit"
_DEAD_LETTER_CONFIG: Final = "errors.deadletterqueue.topic.name"

_ALL_STATES: Final = tuple(sorted(int(state) for state in DURABLE_STATES))
_WITHOUT_ARCHIVING: Final = tuple(state for state in _ALL_STATES if state != DeliveryState.ARCHIVING)

_LOG_COLUMNS: Final = ("topic_id", "partition", "log_start_offset", "log_end_offset")


def _no_logs() -> pa.Table:
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    return pa.table({name: pa.array([], kind) for name, kind in zip(_LOG_COLUMNS, kinds, strict=True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """What a run knows of its cluster.

    `delivery_states`: numbers that its release may persist. `delivery_count_limits` by group id, where the cluster
    reports them (Kafka 4.3 and later). `state_partition_count` None: not known. `logs`: one row a topic partition, its
    highest log start and log end of the observation.
    """

    delivery_states: tuple[int, ...] = _ALL_STATES
    delivery_count_limits: Mapping[str, int] = field(default_factory=dict)
    state_partition_count: int | None = None
    logs: pa.Table = field(default_factory=_no_logs)

    def delivery_count_limit(self, group_id: str | None) -> int:
        """The limit of a group, the broker's default where it is not known."""
        return self.delivery_count_limits.get(group_id or "", DEFAULT_DELIVERY_COUNT_LIMIT)


def observed_cluster(groups: pa.Table, offsets: pa.Table) -> ObservedCluster:
    """The cluster in one run's rows of ``GROUP_OBSERVATIONS`` and ``OFFSET_OBSERVATIONS``.

    Archiving (3) comes with the dead letter queue of Kafka 4.4: a release that has it has its group configuration.
    Where no group's configuration could be read, archiving is allowed.
    """
    configs = [
        (row["group_id"], dict(row["configs"]))
        for row in groups.select(["group_id", "configs"]).to_pylist()
        if row["configs"]
    ]
    return ObservedCluster(
        delivery_states=_states(names for _, names in configs),
        delivery_count_limits=_limits(configs),
        state_partition_count=_state_partition_count(offsets),
        logs=_logs(offsets),
    )


def _states(configs: Iterable[Mapping[str, str]]) -> tuple[int, ...]:
    known = list(configs)
    has_dead_letters = any(_DEAD_LETTER_CONFIG in names for names in known)
    return _ALL_STATES if has_dead_letters or not known else _WITHOUT_ARCHIVING


def _limits(configs: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, int]:
    """The greater one where the limit changed during the observation."""
    limits: dict[str, int] = {}
    for group_id, names in configs:
        text = names.get(_LIMIT_CONFIG, "")
        if text.isdecimal():
            limits[group_id] = max(int(text), limits.get(group_id, 0))
    return limits


def _state_partition_count(offsets: pa.Table) -> int | None:
    rows = offsets.select(["group_id", "topic", "partition"]).to_pylist()
    partitions = {row["partition"] for row in rows if row["group_id"] is None and row["topic"] == STATE_TOPIC}
    return len(partitions) or None


def _logs(offsets: pa.Table) -> pa.Table:
    ends: dict[tuple[str, int], dict[str, Any]] = {}
    for row in offsets.select(["group_id", *_LOG_COLUMNS]).to_pylist():
        if row.pop("group_id") is None and row["topic_id"] is not None:
            known = ends.setdefault((row["topic_id"], row["partition"]), row)
            for name in ("log_start_offset", "log_end_offset"):
                known[name] = _max_known(known[name], row[name])
    return pa.Table.from_pylist(list(ends.values()), schema=_no_logs().schema)


def _max_known(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
