"""What is left of share groups, from the brokers only: the facts that `acktrail.model.drained` judges, and how old the
oldest unfinished record is at most. One round of requests for all groups that are asked about together.

Members are read before start offsets: a member that leaves has its deliveries written first, so a start offset that is
absent afterwards was never written by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acktrail.errors import AcktrailError, NotAuthorized, RetryableError, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from acktrail.kafka.descriptions import GroupDescription, LogOffsets, ShareOffset, TopicDescription, TopicPartition
from acktrail.kafka.record_times import LogOffset, RecordTimes
from acktrail.model.drained import Begin, DeliveryFacts, GroupLeft, Left, Wanted, left_in_group, left_in_partition
from acktrail.text_tables import printable
from acktrail.times import iso_duration_ms

AUTO_RESET: Final = "share.auto.offset.reset"
_LOCK: Final = "share.record.lock.duration.ms"
_CLOCKS_MS: Final = 60_000
"""A record of a duration is taken as young a little longer: the brokers' clocks, which decide, may be behind."""
_NOT_LOOKED: Final = Left(None, "only members were asked for")
_Parts = Mapping[TopicPartition, ShareOffset | None]


class _Policy(NamedTuple):
    begin: Begin = Begin.UNKNOWN
    duration_ms: int = 0
    lock_ms: int = 0


class DrainLooks:
    """Looks again and again on the connection of `admin`. One thread."""

    def __init__(self, admin: ShareGroupAdmin, clock: Callable[[], float] = time.time) -> None:
        self._admin, self._clock = admin, clock
        self._times = RecordTimes(client_of(admin))
        self._adds_at_start = admin.capabilities().begins_added_partitions

    def look(self, wanted: Collection[Wanted]) -> dict[Wanted, GroupLeft]:
        """Look now. Each group has its own answer or error. Raises as `ShareGroupAdmin`: no broker answers."""
        ids = sorted({one.group_id for one in wanted})
        groups = {one.group_id: one for one in self._admin.describe_groups(ids, tolerates_timeouts=True)}
        judged = {one.group_id for one in wanted if not one.members_only}
        there = [group_id for group_id in ids if group_id in judged and groups[group_id].error_code == NONE]
        answers = self._admin.describe_group_offsets(there, tolerates_timeouts=True)
        offsets = {one.group_id: one for one in answers}
        failed = {one.group_id: self._admin.error_of(one) for one in groups.values() if one.error_code}
        failed |= {one.group_id: self._admin.error_of(one) for one in answers if one.error_code}
        rows = {group_id: one.offsets for group_id, one in offsets.items() if group_id not in failed}
        found = {one: _failed(failed[one.group_id]) for one in wanted if one.group_id in failed}
        found |= {
            one: GroupLeft(_NOT_LOOKED, _members(groups[one.group_id]))
            for one in wanted
            if one.members_only and one not in found
        }
        asked = [one for one in wanted if one not in found]
        topics = self._topics({name for one in asked for name in _names(one, groups[one.group_id], rows[one.group_id])})
        for one in asked:
            try:
                found[one] = self._group(one, groups[one.group_id], rows[one.group_id], topics)
            except NotAuthorized as error:
                found[one] = _failed(error)
            except UnknownName as error:
                near = [topic.name for topic in self._admin.topics()]
                found[one] = _failed(UnknownName(error.kind, error.name, known=near))
        return found

    def _topics(self, names: Collection[str]) -> Mapping[str, TopicDescription]:
        return {topic.name: topic for topic in self._admin.topics(sorted(names))}

    def _group(
        self,
        wanted: Wanted,
        group: GroupDescription,
        rows: Sequence[ShareOffset],
        topics: Mapping[str, TopicDescription],
    ) -> GroupLeft:
        parts, unseen = _parts(wanted, [topics[name] for name in _names(wanted, group, rows)], rows)
        logs = self._logs(parts)
        unwritten = {at for at, row in parts.items() if row is None or row.start_offset is None}
        holding = [at for at in unwritten if not _is_empty(logs[at])]
        policy = self._policy(wanted.group_id) if holding else _Policy()
        young = self._first_young(holding, logs, policy, wanted, has_members=bool(group.members))
        known = {at.topic for at, row in parts.items() if row is not None}
        facts = {
            at: DeliveryFacts(
                start_offset=None if row is None else row.start_offset,
                lag=None if row is None else row.lag,
                log_start=logs[at].log_start_offset,
                log_end=logs[at].high_watermark,
                begin=policy.begin,
                has_members=bool(group.members),
                first_young=young.get(at),
                is_added=self._adds_at_start and row is None and at.topic in known,
            )
            for at, row in parts.items()
        }
        lefts = {at: _left(parts[at], facts[at]) for at in parts}
        left = left_in_group({f"{printable(at.topic)}-{at.partition}": one for at, one in lefts.items()}, unseen)
        waiting = {at: facts[at] for at, one in lefts.items() if not one.is_drained}
        age = self._age(waiting, topics) if wanted.with_age and parts and not unseen else None
        return GroupLeft(left, _members(group), age)

    def _logs(self, parts: Iterable[TopicPartition]) -> Mapping[TopicPartition, LogOffsets]:
        listed = self._admin.list_offsets(sorted(parts))
        return {TopicPartition(topic=log.topic, partition=log.partition): log for log in listed}

    def _policy(self, group_id: str) -> _Policy:
        (found,) = self._admin.group_configs([group_id])
        configs = found.configs or {}
        text, lock = configs.get(AUTO_RESET, ""), configs.get(_LOCK, "")
        name, _, duration = text.partition(":")
        try:
            begin = Begin(name)
            duration_ms = iso_duration_ms(duration) if begin is Begin.BY_DURATION else 0
        except ValueError:
            return _Policy()
        return _Policy(begin, duration_ms, int(lock) if lock.isdigit() else 0)

    def _first_young(
        self,
        parts: Sequence[TopicPartition],
        logs: Mapping[TopicPartition, LogOffsets],
        policy: _Policy,
        wanted: Wanted,
        *,
        has_members: bool,
    ) -> dict[TopicPartition, int]:
        """The first record of each log that counts as young, or the end of the log. Records behind that end are newer
        than this look."""
        age_ms = policy.duration_ms + _CLOCKS_MS if policy.begin is Begin.BY_DURATION else 0
        if has_members:
            age_ms = max(age_ms, wanted.young_ms, 2 * policy.lock_ms)
        if policy.begin not in {Begin.LATEST, Begin.BY_DURATION} or not age_ms:
            return {}
        at_ms = max(0, round(self._clock() * 1000) - age_ms)
        found = {}
        for one in self._admin.offsets_at(sorted(parts), at_ms):
            at = TopicPartition(topic=one.topic, partition=one.partition)
            end = logs[at].high_watermark
            if one.error_code == NONE and end is not None:
                found[at] = end if one.offset is None else min(one.offset, end)
        return found

    def _age(
        self, waiting: Mapping[TopicPartition, DeliveryFacts], topics: Mapping[str, TopicDescription]
    ) -> float | None:
        """At most: the oldest unfinished record lies at or behind where a share partition is, or will begin."""
        wanted = []
        for at, facts in waiting.items():
            begin = facts.first_young if facts.start_offset is None else facts.start_offset
            topic_id = topics[at.topic].topic_id
            if topic_id is None or facts.log_start is None:
                return None
            first = max(facts.log_start, begin if begin is not None else 0)
            wanted.append(LogOffset(at.topic, topic_id, at.partition, first))
        times = self._times.look(wanted)
        if any(one not in times for one in wanted):
            return None
        return max([0.0, *(self._clock() - times[one].first_ms / 1000 for one in wanted)])


def _members(group: GroupDescription) -> tuple[str, ...]:
    return tuple(one.client_id for one in group.members)


def _names(wanted: Wanted, group: GroupDescription, rows: Sequence[ShareOffset]) -> list[str]:
    """The topics to look at, those that were deleted or are not there yet among them."""
    subscribed = {name for member in group.members for name in member.subscribed_topics}
    return sorted(wanted.topics or {*subscribed, *(row.topic for row in rows)})


def _parts(
    wanted: Wanted, topics: Sequence[TopicDescription], rows: Sequence[ShareOffset]
) -> tuple[_Parts, Sequence[str]]:
    """Every partition of the topics, with what the group has of it, and why a topic is not among them. Raises
    UnknownName: a topic that was named is not there; NotAuthorized."""
    known = {(row.topic, row.topic_id, row.partition): row for row in rows}
    parts: dict[TopicPartition, ShareOffset | None] = {}
    unseen = []
    for topic in topics:
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            raise NotAuthorized("DESCRIBE", f"topic {topic.name}")
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION and topic.name in wanted.topics:
            raise UnknownName("topic", topic.name)
        if topic.error_code not in {NONE, UNKNOWN_TOPIC_OR_PARTITION}:
            unseen.append(f"{printable(topic.name)}: {topic.error}")
        for index in range(topic.partition_count):
            at = TopicPartition(topic=topic.name, partition=index)
            parts[at] = known.get((topic.name, topic.topic_id, index))
    return parts, unseen


def _left(row: ShareOffset | None, facts: DeliveryFacts) -> Left:
    if row is not None and row.error_code != NONE:
        return Left(None, row.error or f"error {row.error_code}")
    return left_in_partition(facts)


def _is_empty(log: LogOffsets) -> bool:
    return log.log_start_offset is not None and log.log_start_offset == log.high_watermark


def _failed(error: AcktrailError) -> GroupLeft:
    """A coordinator that does not answer now may answer later; all else is an error."""
    reason = Left(None, f"not known: {error.message}")
    return GroupLeft(reason, error=None if isinstance(error, RetryableError) else error)
