"""Whether a group finished records after others of the same keys, by the log and the states of its share partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from acktrail.change.cluster import Cluster
from acktrail.change.plan.snapshot_facts import PartitionState
from acktrail.change.plan.snapshot_reader import read_states
from acktrail.kafka.log_reader import LogReader, PrunedOffsets
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_ranges import OffsetRanges, Span
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

_MOST_OFFSETS: Final = 100_000
"""Behind the first records, of all partitions together, that are read."""
_TERMINAL: Final = frozenset({int(DeliveryState.ACKNOWLEDGED), int(DeliveryState.ARCHIVED)})
Keys = Mapping[int, Mapping[bytes, int]]
"""By partition, the offset of the first record of each key."""


def keys_finished_later(
    cluster: Cluster, group: str, topic: str, firsts: Keys, but: Mapping[int, Sequence[Span]]
) -> tuple[int | None, str | None]:
    """Return for how many keys the group finished a record behind the first one, those in `but` apart; or None and the
    reason why that is not known. Raises UnknownName, NotAuthorized, RetryableError."""
    found = cluster.topic(topic)
    ends = {number: log.last_stable_offset or 0 for number, log in found.log_offsets([*firsts]).items()}
    spans = {number: (min(own.values()), ends[number]) for number, own in firsts.items() if own}
    offsets = sum(end - first for first, end in spans.values())
    if offsets > _MOST_OFFSETS:
        return None, f"{offsets:,} offsets lie behind the first records, and {_MOST_OFFSETS:,} are read at most"
    topic_id, group_id = TopicId(found.topic_id), GroupId(group)
    keys = {number: SharePartition(group_id=group_id, topic_id=topic_id, partition=number) for number in spans}
    facts = read_states(cluster, list(keys.values()))
    if facts.reason or facts.reasons:
        return None, facts.reason or next(iter(facts.reasons.values()))
    late: set[tuple[int, bytes]] = set()
    finished = {number: _finished(facts.states.get(key), but.get(number, ())) for number, key in keys.items()}
    for number, span in spans.items():
        own = firsts[number]
        for part in LogReader(found).read({number: span}):
            for raw in () if isinstance(part, PrunedOffsets) else part.records(own.__contains__):
                key = raw.key or b""
                if own[key] < raw.offset and not any(finished[number].outside(raw.offset, raw.offset)):
                    late.add((number, key))
    return len(late), None


def _finished(state: PartitionState | None, but: Sequence[Span]) -> OffsetRanges:
    """What is below the start offset, or acknowledged or archived in the state, without the offsets in `but`."""
    found = OffsetRanges()
    if state is not None and state.start_offset:
        found.add(0, state.start_offset - 1)
    for first, last, kind, _ in () if state is None else state.batches:
        if kind in _TERMINAL:
            found.add(first, last)
    for first, last in but:
        found.remove(first, last)
    return found
