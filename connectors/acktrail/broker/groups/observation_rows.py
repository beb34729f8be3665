"""Descriptions of a cluster's groups, topics and logs as rows of the observation tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from acktrail.broker.descriptions import (
    GroupConfigs,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    LogOffsets,
    TopicDescription,
)
from acktrail.columnar.schemas.table_schemas import GROUP_OBSERVATIONS, TOPICS

_PRESENT: Final = "present"
_HIDDEN: Final = "not_authorized"
_SHARE: Final = "share"
_OTHER_GROUP_TYPES: Final = ("consumer.", "streams.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRows:
    """Makes the rows of one side (`phase`) of one observation."""

    cluster_id: str
    run_id: str
    phase: str

    def topics(self, topics: Iterable[TopicDescription], hidden: Iterable[str], at: dt.datetime) -> pa.Table:
        """A listing of every topic, as of `at`, and of the topic ids `hidden`, which this principal may not DESCRIBE. A
        topic without an id is left out."""
        side = {"cluster_id": self.cluster_id, "run_id": self.run_id, "first_seen_at": at, "last_seen_at": at}
        rows: list[dict[str, Any]] = [
            {
                **side,
                "topic_id": topic.topic_id,
                "topic": topic.name,
                "partition_count": topic.partition_count,
                "is_internal": topic.is_internal,
                "status": _PRESENT,
            }
            for topic in topics
            if topic.topic_id is not None
        ]
        rows += [{**side, "topic_id": topic_id, "status": _HIDDEN} for topic_id in sorted(hidden)]
        return pa.Table.from_pylist(rows, schema=TOPICS)

    def groups(
        self,
        listings: Mapping[str, GroupListing],
        descriptions: Iterable[GroupDescription],
        configs: Mapping[str, GroupConfigs],
        at: dt.datetime,
    ) -> pa.Table:
        """One row a group. An error about its configuration alone leaves the error code 0. A group that no broker
        listed was asked for by its name."""
        rows = [self._group(listings.get(group.group_id), group, configs[group.group_id], at) for group in descriptions]
        return pa.Table.from_pylist(rows, schema=GROUP_OBSERVATIONS)

    def share_partitions(self, groups: Iterable[GroupOffsets], at: dt.datetime) -> list[dict[str, Any]]:
        """One row a share partition. A group whose offsets could not be described has one row without a partition."""
        return [row for group in groups for row in self._group_offsets(group, at)]

    def topic_partitions(
        self, logs: Iterable[LogOffsets], topic_ids: Mapping[str, str | None], at: dt.datetime
    ) -> list[dict[str, Any]]:
        """One row a topic partition, with the ends of its log."""
        return [
            {
                **self._side(at),
                "topic": log.topic,
                "topic_id": topic_ids.get(log.topic),
                "partition": log.partition,
                "log_start_offset": log.log_start_offset,
                "log_end_offset": log.high_watermark,
                "last_stable_offset": log.last_stable_offset,
                "log_leader_epoch": log.leader_epoch,
                "error_code": log.error_code,
                "error": log.error,
            }
            for log in logs
        ]

    def _side(self, at: dt.datetime) -> dict[str, Any]:
        return {"cluster_id": self.cluster_id, "run_id": self.run_id, "phase": self.phase, "observed_at": at}

    def _group(
        self, listing: GroupListing | None, group: GroupDescription, configs: GroupConfigs, at: dt.datetime
    ) -> dict[str, Any]:
        return {
            **self._side(at),
            "group_id": group.group_id,
            "group_type": _SHARE if listing is None else listing.group_type,
            "group_state": group.state or (None if listing is None else listing.state),
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.assignor,
            "members": None if group.error_code else len(group.members),
            "coordinator_id": group.coordinator_id,
            "configs": _own_configs(configs),
            "error_code": group.error_code,
            "error": group.error or (f"configuration: {configs.error}" if configs.error else None),
        }

    def _group_offsets(self, group: GroupOffsets, at: dt.datetime) -> list[dict[str, Any]]:
        side = {**self._side(at), "group_id": group.group_id}
        if group.error_code:
            return [{**side, "error_code": group.error_code, "error": group.error}]
        return [{**side, **asdict(offset)} for offset in group.offsets]


def _own_configs(configs: GroupConfigs) -> list[tuple[str, str]] | None:
    """Sorted, without the ones for groups of other types."""
    if configs.configs is None:
        return None
    return sorted(pair for pair in configs.configs.items() if not pair[0].startswith(_OTHER_GROUP_TYPES))
