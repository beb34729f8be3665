"""Where given offsets come from: a file of Kafka's tools, an earlier plan, the exported history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.state.state_topic import StateTopic
from acktrail.config import TablesConfig
from acktrail.group_changes.collection.past_states import HistoryRecord, StateAt, state_at
from acktrail.group_changes.request.offsets_file import check_rows, offset_rows
from acktrail.group_changes.request.target_offset import Given, GivenOffsets
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import instant_text

__all__ = ["from_file", "from_history"]


def from_file(admin: ShareGroupAdmin, file: Path, groups: Sequence[str]) -> GivenOffsets:
    """The offsets in a CSV file. Of a large one the topics are compared with those that are there while it is read.

    Raises:
        MalformedFile, ChangeRefused: it cannot be read, or contradicts itself or `groups`.
    """

    def partition_counts() -> dict[str, int]:
        return {topic.name: topic.partition_count for topic in admin.topics()}

    rows = check_rows(offset_rows(file), groups, partition_counts)
    return {group: {part: Given(offset=offset) for part, offset in offsets.items()} for group, offsets in rows.items()}


def from_history(admin: ShareGroupAdmin, tables: TablesConfig, groups: Sequence[str], moment_ms: int) -> GivenOffsets:
    """Where groups stood at a moment, by the exported state records; with a reason where they do not tell for sure.

    Raises:
        NotAuthorized, RetryableError: the state topic cannot be asked how far it was exported.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    from acktrail.tables.delta.row_values import read_rows
    from acktrail.tables.delta.store import Tables

    store = Tables(tables)
    of_cluster = {"cluster_id": admin.cluster_id}
    columns = ["state_partition", "offset", "timestamp_ms", "key", "value"]
    rows = read_rows(store, "state_records", {**of_cluster, "group_id": list(groups)}, columns=columns)
    ranges = read_rows(store, "export_ranges", of_cluster)
    names = {row["topic_id"]: row["topic"] for row in read_rows(store, "topics", of_cluster)}
    bounds = _bounds(admin, {row["state_partition"] for row in rows}, moment_ms)
    records = [HistoryRecord(**row) for row in rows]
    found: dict[str, dict[tuple[str, int], Given]] = defaultdict(dict)
    for key, state in state_at(records, moment_ms).items():
        name = names.get(key.topic_id)
        if name is not None:
            reason = state.reason or _doubt(state, ranges, bounds, moment_ms)
            found[key.group_id][name, key.partition] = Given(
                offset=None if reason else state.effective_start_offset, reason=reason, topic_id=key.topic_id
            )
    return found


def _bounds(admin: ShareGroupAdmin, partitions: set[int], moment_ms: int) -> dict[int, int]:
    """For each state partition an offset up to which everything older than `moment_ms` lies below."""
    topic = StateTopic(admin)
    if not partitions or not topic.is_present:
        return {}
    asked = [TopicPartition(topic=STATE_TOPIC, partition=partition) for partition in sorted(partitions)]
    later = {found.partition: found.offset for found in admin.offsets_at(asked, moment_ms + 1)}
    ends = topic.log_offsets(partitions)
    return {p: ends[p].high_watermark or 0 if later.get(p) is None else int(later[p] or 0) for p in partitions}


def _doubt(
    state: StateAt, ranges: Sequence[Mapping[str, Any]], bounds: Mapping[int, int], moment_ms: int
) -> str | None:
    """Why the records may not tell where a share partition stood; None: they do."""
    mine = [row for row in ranges if row["state_partition"] == state.state_partition]
    exported = max((row["last_offset"] + 1 for row in mine if row["last_offset"] is not None), default=0)
    bound = bounds.get(state.state_partition)
    if bound is not None:  # Kafka's offset, as one of the tables
        bound += max((row["offset_shift"] or 0 for row in mine), default=0)
    if bound is None or exported < bound:
        return f"state partition {state.state_partition} is not exported up to {instant_text(moment_ms)}: export first"
    for row in mine:
        if row["gap_first"] is not None and row["gap_last"] > state.snapshot_offset and row["gap_first"] < bound:
            gap = f"{row['gap_first']} to {row['gap_last']}"
            return f"offsets {gap} of state partition {state.state_partition} were pruned before they were exported"
    if state.effective_start_offset is None:
        return "it had no start offset then: it was not initialized"
    return None
