"""One look at all share groups, from the brokers alone: states, members, lag, and how old what is unfinished is.

The oldest unfinished record lies between two offsets that are known::

    start offset 100, log end 180, lag 30: 80 offsets, 50 of them finished
    at or behind 100     the start offset moves lazily (a broker writes it with the next acknowledgement)
    at or before 150     30 offsets are unfinished: not all of them fit behind 150

So the record at 150 is at least as young as the oldest unfinished one, and the record at 100 at least as old. Where
nothing behind the start offset is finished (lag 80) the two are one record, and the age is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.kafka.descriptions import CommittedOffsets, GroupOffsets, LogOffsets, ShareOffset, TopicPartition
from acktrail.kafka.record_times import LogOffset, RecordTimes
from acktrail.serving.group_gauges import MOST_SHARE_PARTITIONS, SeenGroup, SeenQueue, by_urgency

_NOTHING: Final = (0.0, 0.0)
_SHARE: Final = "share"
_NOT_KNOWN: Final = (None, None)
Ages = tuple[float | None, float | None]


class Look(NamedTuple):
    """All share groups that this principal may DESCRIBE, and their share partitions."""

    groups: Sequence[SeenGroup]
    queues: Sequence[SeenQueue]


class GroupLooks:
    """Looks again and again on the connection of `admin`. The cost of a look is bounded by the numbers of brokers,
    groups and share partitions; ages are looked up for those share partitions that have series of their own."""

    def __init__(self, admin: ShareGroupAdmin, clock: Callable[[], float] = time.time) -> None:
        self._admin, self._clock = admin, clock
        self._times = RecordTimes(client_of(admin))

    def look(self) -> Look:
        """Look now. A group whose coordinator does not answer, or that may not be described, has an error and share
        partitions that are not known; a topic that may not be read has no ages. Raises as `ShareGroupAdmin`."""
        listed = {one.group_id: one.state for one in self._admin.list_groups()}
        described = [
            one
            for one in self._admin.describe_groups(sorted(listed), tolerates_timeouts=True)
            if one.error_code != GROUP_ID_NOT_FOUND  # deleted meanwhile
        ]
        groups = [
            SeenGroup(
                one.group_id,
                one.state or listed[one.group_id],
                None if one.error_code else len(one.members),
                one.error_code,
            )
            for one in described
        ]
        offsets = self._admin.describe_group_offsets(
            (one.group_id for one in described if not one.error_code), tolerates_timeouts=True
        )
        unknown = [one.group_id for one in groups if one.error_code] + [
            one.group_id for one in offsets if one.error_code
        ]
        rows = {
            SeenQueue(group.group_id, row.topic, row.partition, row.lag, row.start_offset): row
            for group in offsets
            for row in group.offsets
        }
        ages = self._ages({queue: rows[queue] for queue in by_urgency(rows)[:MOST_SHARE_PARTITIONS]})
        queues = [queue._replace(oldest_s=ages.get(queue, _NOT_KNOWN)) for queue in rows]
        return Look(groups, [*queues, *(SeenQueue(group_id, "", None, None, None) for group_id in unknown)])

    def _ages(self, rows: dict[SeenQueue, ShareOffset]) -> dict[SeenQueue, Ages]:
        """The age of the oldest unfinished record, at least and at most. Ends of logs are listed after the lags: a
        record before an end that has moved on is younger, and its age is at least as true."""
        found: dict[SeenQueue, Ages] = {queue: _NOTHING for queue, row in rows.items() if row.lag == 0}
        behind = {queue: row for queue, row in rows.items() if row.lag and row.lag > 0 and row.start_offset is not None}
        logs = self._logs(behind.values())
        bounds = {
            queue: pair for queue, row in behind.items() if (pair := _bounds(row, logs.get((row.topic, row.partition))))
        }
        times = self._times.look({log for pair in bounds.values() for log in pair})
        now_ms = self._clock() * 1000
        for queue, (begin, newest) in bounds.items():
            oldest, youngest = times.get(begin), times.get(newest)
            at_least = None if youngest is None else max(0.0, (now_ms - youngest.newest_ms) / 1000)
            at_most = None if oldest is None else (now_ms - oldest.first_ms) / 1000
            found[queue] = (at_least, at_most if at_most is not None and at_most >= 0 else None)
        return found

    def _logs(self, rows: Iterable[ShareOffset]) -> dict[tuple[str, int], LogOffsets]:
        parts = {TopicPartition(topic=row.topic, partition=row.partition) for row in rows}
        return {
            (log.topic, log.partition): log for log in self._admin.list_offsets(sorted(parts)) if not log.error_code
        }


def _bounds(row: ShareOffset, log: LogOffsets | None) -> tuple[LogOffset, LogOffset] | None:
    """Where the oldest unfinished record lies: not before the first offset, not behind the second one."""
    if log is None or log.high_watermark is None or row.topic_id is None or row.lag is None or row.start_offset is None:
        return None
    begin = max(row.start_offset, log.log_start_offset or 0)
    newest = max(begin, log.high_watermark - row.lag)
    if newest >= log.high_watermark:
        return None
    place = (row.topic, row.topic_id, row.partition)
    return LogOffset(*place, begin), LogOffset(*place, newest)


def topic_readers(admin: ShareGroupAdmin, topic: str) -> tuple[dict[str, str], frozenset[str]]:
    """Return the groups of every type that have a position in a topic, or share consumers that subscribe to it, each
    with its type; and those whose coordinators do not answer. A principal without DESCRIBE on a group does not see it.
    Raises as `ShareGroupAdmin`."""
    types: Mapping[str, str] = {one.group_id: one.group_type for one in admin.list_groups(())}
    shares = [group_id for group_id, group_type in types.items() if group_type == _SHARE]
    others = [group_id for group_id, group_type in types.items() if group_type != _SHARE]
    answers: list[GroupOffsets | CommittedOffsets] = [
        *admin.describe_group_offsets(shares, tolerates_timeouts=True),
        *admin.committed_offsets(others, tolerates_timeouts=True),
    ]
    found = {one.group_id for one in answers if any(each.topic == topic for each in one.offsets)}
    for group in admin.describe_groups(shares, tolerates_timeouts=True):
        found.update(group.group_id for member in group.members if topic in member.subscribed_topics)
    silent = {one.group_id for one in answers if one.error_code != NONE}
    return {group_id: types[group_id] for group_id in sorted(found)}, frozenset(silent - found)
