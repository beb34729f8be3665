"""Where groups stood at a moment, by the exported state records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acktrail.change.collection.facts import TargetOffset, TargetOffsets
from acktrail.config import TablesConfig
from acktrail.kafka.descriptions import TopicPartition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import instant_text

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.reconcile.replay_resume import TopicAtTime
    from acktrail.tables.delta.store import Tables

_COMPLETE = "complete"


def from_history(admin: ShareGroupAdmin, config: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Start offsets of groups at a moment, by the exported state records; with a reason where they do not show it.
    Raises NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
    ConfigurationError, RetryableError: nothing was exported, or the tables cannot be read."""
    from acktrail.reconcile.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment, (names, _) = topic_at_time(tables, moment_ms), topics_by_id(tables)
    rows = [row for row in states_of_topic(tables, moment).to_pylist() if row["group_id"] in groups]
    behind = _not_exported(admin, tables, moment, {row["state_partition"] for row in rows})
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in rows:
        start, reason = replayed_start(row)
        number, topic = row["state_partition"], names.get(row["topic_id"])
        if number in behind:
            start = None
            reason = f"state partition {number} is not exported up to {instant_text(moment_ms)}: export first"
        if topic is not None:
            then = TargetOffset(offset=start, reason=reason, topic_id=row["topic_id"])
            found[row["group_id"]][topic, row["partition"]] = then
    return found


def replayed_start(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """The first unfinished offset in a row of a replay (``acktrail.reconcile.partition_replay.REPLAYED``); without one
    the reason."""
    start, reason = row["first_unfinished_offset"], row["completeness_reason"]
    if row["completeness"] != _COMPLETE:
        return None, f"its state is not known for sure: {reason or row['completeness']}"
    return start, "it had no start offset: it was not initialized" if start is None else reason


def topics_by_id(tables: Tables) -> tuple[dict[str, str], dict[str, int]]:
    """Name by topic id, and partition count by name: that of the newest topic with the name."""
    rows = tables.read("topics", columns=["topic_id", "topic", "partition_count", "last_seen_at"]).to_pylist()
    rows.sort(key=lambda row: row["last_seen_at"])
    counts = {row["topic"]: row["partition_count"] for row in rows if row["partition_count"] is not None}
    return {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}, counts


def _not_exported(admin: ShareGroupAdmin, tables: Tables, moment: TopicAtTime, numbers: set[int]) -> set[int]:
    """The state partitions among `numbers` that have records up to the moment which the tables lack."""
    from acktrail.kafka.log_reader import StateTopic
    from acktrail.tables.exported.export_ranges import newest_shifts

    topic, shifts = StateTopic(admin), newest_shifts(tables)
    if not numbers or not topic.is_present:
        return numbers
    asked = [TopicPartition(topic=STATE_TOPIC, partition=number) for number in sorted(numbers)]
    later = {found.partition: found.offset for found in admin.offsets_at(asked, (moment.at_ms or 0) + 1)}
    ends = {number: log.high_watermark or 0 for number, log in topic.log_offsets(numbers).items()}

    def bound(number: int) -> int:
        """Above all records up to the moment, as an offset of the tables."""
        at = later.get(number)
        return (ends[number] if at is None else at) + shifts.get(number, 0)

    return {number for number in numbers if (moment.coverages[number].end_offset or 0) < bound(number)}
