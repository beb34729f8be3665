"""Target offsets that a file, an earlier plan or the exported history names, one for each share partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acktrail.config import TablesConfig
from acktrail.model.share_partition import STATE_TOPIC, SharePartition
from acktrail.times import instant_text

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.state.state_lookup import PartitionReading
    from acktrail.wire.raw_record import RawRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOffset:
    """`offset` None: there is none, for `reason`. `topic_id` is the topic's incarnation at that time; `left_at` where
    the plan that is undone left the start offset."""

    offset: int | None
    reason: str | None = None
    topic_id: str | None = None
    left_at: int | None = None


TargetOffsets = Mapping[str, Mapping[tuple[str, int], TargetOffset]]
"""By group, then topic and partition."""


def from_history(admin: ShareGroupAdmin, tables: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Start offsets of groups at a moment, by the exported state records; with a reason where they do not show it.

    Raises:
        NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    from acktrail.tables.delta.store import Tables
    from acktrail.wire.raw_record import RawRecord

    store = Tables(tables)
    of_cluster = {"cluster_id": admin.cluster_id}
    columns = ["state_partition", "offset", "timestamp_ms", "key", "value"]
    rows = store.rows("state_records", {**of_cluster, "group_id": list(groups)}, columns=columns)
    ranges = store.rows("export_ranges", of_cluster)
    names = {row["topic_id"]: row["topic"] for row in store.rows("topics", of_cluster)}
    bounds = _bounds(admin, {row["state_partition"] for row in rows}, moment_ms)
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for key, reading in states_at((RawRecord(**row) for row in rows), moment_ms).items():
        name = names.get(key.topic_id)
        if name is not None:
            reason = _doubt(reading, ranges, bounds, moment_ms)
            start = None if reason or reading.state is None else reading.state.effective_start_offset
            found[key.group_id][name, key.partition] = TargetOffset(offset=start, reason=reason, topic_id=key.topic_id)
    return found


def states_at(records: Iterable[RawRecord], moment_ms: int) -> dict[SharePartition, PartitionReading]:
    """The state of every share partition after its records up to `moment_ms` (inclusive); a deleted one is left out.

    Records may come in any order. Cost: a sort, and one decode a record.
    """
    from acktrail.broker.state.state_lookup import PartitionReading, after_record
    from acktrail.wire.raw_record import decode_raw
    from acktrail.wire.state_key import decode_key

    readings: dict[SharePartition, PartitionReading] = {}
    for raw in sorted(records, key=lambda raw: (raw.state_partition, raw.offset)):
        if raw.timestamp_ms is not None and raw.timestamp_ms <= moment_ms:
            addressed = decode_raw(raw)
            key = addressed.record.key if addressed.record is not None else decode_key(raw.key or b"")[1]
            before = readings.get(key, PartitionReading(state_partition=raw.state_partition))
            readings[key] = after_record(before, addressed)
    return {key: found for key, found in readings.items() if found.state is not None or found.unreadable is not None}


def _bounds(admin: ShareGroupAdmin, partitions: set[int], moment_ms: int) -> dict[int, int]:
    """For each state partition an offset above all records that are older than `moment_ms`."""
    from acktrail.broker.descriptions import TopicPartition
    from acktrail.broker.state.state_topic import StateTopic

    topic = StateTopic(admin)
    if not partitions or not topic.is_present:
        return {}
    asked = [TopicPartition(topic=STATE_TOPIC, partition=partition) for partition in sorted(partitions)]
    later = {found.partition: found.offset for found in admin.offsets_at(asked, moment_ms + 1)}
    ends = topic.log_offsets(partitions)
    return {p: ends[p].high_watermark or 0 if later.get(p) is None else int(later[p] or 0) for p in partitions}


def _doubt(
    reading: PartitionReading, ranges: Sequence[Mapping[str, Any]], bounds: Mapping[int, int], moment_ms: int
) -> str | None:
    """Why the records may not show the start offset of a share partition; None: they do."""
    if reading.unreadable is not None:
        return f"a record cannot be read: {reading.unreadable}"
    if reading.snapshot_offset is None:
        return "the snapshot below its updates was not exported"
    number = reading.state_partition
    mine = [row for row in ranges if row["state_partition"] == number]
    exported = max((row["last_offset"] + 1 for row in mine if row["last_offset"] is not None), default=0)
    bound = bounds.get(number)
    if bound is not None:  # Kafka's offset, as one of the tables
        bound += max((row["offset_shift"] or 0 for row in mine), default=0)
    if bound is None or exported < bound:
        return f"state partition {number} is not exported up to {instant_text(moment_ms)}: export first"
    for row in mine:
        if row["gap_first"] is not None and row["gap_last"] > reading.snapshot_offset and row["gap_first"] < bound:
            gap = f"offsets {row['gap_first']} to {row['gap_last']} of state partition {number}"
            return f"{gap} were pruned before they were exported"
    if reading.state is None or reading.state.effective_start_offset is None:
        return "it had no start offset then: it was not initialized"
    return None
