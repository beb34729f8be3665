"""Records of the state topic that the tables have: those that it has pruned, and start offsets at an earlier moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from acktrail.change.collection.facts import ClusterFacts, TargetOffset, TargetOffsets
from acktrail.change.verification.partition_outcome import Seen
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.format.wire.dialects.released import decode_key
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.state.state_lookup import PartitionReading, after_record
from acktrail.kafka.state.state_topic import StateTopic
from acktrail.model.share_partition import STATE_TOPIC, SharePartition
from acktrail.times import instant_text

_COLUMNS: Final = ["state_partition", "offset", "timestamp_ms", "key", "value"]


def exported_between(
    tables: TablesConfig, cluster: ClusterFacts, keys: Collection[SharePartition], spans: Mapping[int, tuple[int, int]]
) -> list[tuple[SharePartition, Seen]] | None:
    """The records of `keys` in `spans` (state partition: first offset, offset after the last), in order. None: some of
    them were not exported, cannot be decoded, or the tables cannot be read."""
    from acktrail.tables.delta.store import Tables

    store, mine = Tables(tables), {"cluster_id": cluster.cluster_id, "state_partition": list(spans)}
    try:
        ranges = store.rows("export_ranges", {**mine, "state_topic_id": cluster.state_topic_id})
        if cluster.state_topic_id is None or not _are_exported(spans, ranges):
            return None
        groups = sorted({key.group_id for key in keys})
        rows = store.rows("state_records", {**mine, "group_id": groups}, columns=_COLUMNS)
    except AcktrailError:
        return None
    found: list[tuple[SharePartition, Seen]] = []
    inside = (RawRecord(**row) for row in rows if row["offset"] in range(*spans[row["state_partition"]]))
    for raw in _in_order(inside):
        record = decode_raw(raw).record
        if record is None:
            return None
        if record.key in keys:
            found.append((record.key, ((raw.state_partition, raw.offset), record)))
    return found


def _are_exported(spans: Mapping[int, tuple[int, int]], ranges: Iterable[Mapping[str, Any]]) -> bool:
    known: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in ranges:
        if row["offset_shift"]:
            return False  # behind a break of the log the tables have offsets of their own
        if row["first_offset"] is not None and row["last_offset"] is not None:
            known[row["state_partition"]].append((row["first_offset"], row["last_offset"]))
    return all(is_covered(span, known[partition]) for partition, span in spans.items())


def is_covered(span: tuple[int, int], ranges: Collection[tuple[int, int]]) -> bool:
    """Whether `ranges` (first and last offset, both included) hold every offset of `span` (the end excluded)."""
    at, end = span
    for first, last in sorted(ranges):
        if first > at:
            break
        at = max(at, last + 1)
    return at >= end


def from_history(admin: ShareGroupAdmin, tables: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Start offsets of groups at a moment, by the exported state records; with a reason where they do not show it.
    Raises NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
    ConfigurationError, RetryableError: the tables cannot be read."""
    from acktrail.tables.delta.store import Tables

    store, of_cluster = Tables(tables), {"cluster_id": admin.cluster_id}
    rows = store.rows("state_records", {**of_cluster, "group_id": list(groups)}, columns=_COLUMNS)
    ranges = store.rows("export_ranges", of_cluster)
    names = {row["topic_id"]: row["topic"] for row in store.rows("topics", of_cluster)}
    bounds = _bounds(admin, {row["state_partition"] for row in rows}, moment_ms)
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for key, reading in states_at((RawRecord(**row) for row in rows), moment_ms).items():
        name = names.get(key.topic_id)
        if name is not None:
            reason = _doubt(reading, ranges, bounds, moment_ms)
            start = None if reason or reading.state is None else reading.state.first_unfinished_offset
            found[key.group_id][name, key.partition] = TargetOffset(offset=start, reason=reason, topic_id=key.topic_id)
    return found


def states_at(records: Iterable[RawRecord], moment_ms: int) -> dict[SharePartition, PartitionReading]:
    """The state of every share partition after its records up to `moment_ms` (inclusive); a deleted one is left out.
    Records may come in any order. Cost: a sort, and one decode a record."""
    readings: dict[SharePartition, PartitionReading] = {}
    for raw in _in_order(records):
        if raw.timestamp_ms is not None and raw.timestamp_ms <= moment_ms:
            addressed = decode_raw(raw)
            key = addressed.record.key if addressed.record is not None else decode_key(raw.key or b"")[1]
            before = readings.get(key, PartitionReading(state_partition=raw.state_partition))
            readings[key] = after_record(before, addressed)
    return {key: found for key, found in readings.items() if found.state is not None or found.unreadable is not None}


def _in_order(records: Iterable[RawRecord]) -> list[RawRecord]:
    return sorted(records, key=lambda raw: (raw.state_partition, raw.offset))


def _bounds(admin: ShareGroupAdmin, partitions: set[int], moment_ms: int) -> dict[int, int]:
    """For each state partition an offset above all records that are older than `moment_ms`."""
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
            from acktrail.connect.source_batches import DROPPED_BY_RETENTION

            is_dropped = row["gap_reason"] == DROPPED_BY_RETENTION
            return f"{gap} " + ("are not kept any more" if is_dropped else "were pruned before they were exported")
    if reading.state is None or reading.state.first_unfinished_offset is None:
        return "it had no start offset then: it was not initialized"
    return None
