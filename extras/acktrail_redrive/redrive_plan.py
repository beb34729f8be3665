"""The plan of a redrive: which records go where, who gets them, what forbids it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final

from acktrail.change.plan.change_plan import ChangePlan
from acktrail.change.plan.notices import Found, Notice, Severity, by_severity
from acktrail.model.offset_ranges import Span
from acktrail.text_tables import few
from acktrail.times import instant_text
from acktrail.view.wording import counted

KIND: Final = "redrive"
_FRAME_BYTES: Final = 500
"""More than what frames a record in a batch of its own, with the headers that a redrive adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecords:
    """Offsets of one partition of the source, as ranges with both ends inclusive, ascending. `reason`: why these are
    not put back; None: they are."""

    partition: int
    ranges: tuple[Span, ...]
    reason: str | None = None

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReader:
    """A group that has a position in the target, or members that subscribe to it."""

    group_id: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """How many of the records were archived for a cause."""

    cause: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """Where the records go. None: the cluster does not say."""

    topic: str
    topic_id: str
    partition_count: int
    is_compacted: bool | None
    most_bytes: int | None
    retention_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan(ChangePlan):
    """`sources` is the list of records of the topic, in their order. `keyless` have no key. `record_bytes` are keys,
    values and headers. `put_back_before`: how many of them an earlier redrive wrote. `later_finished`: of how many keys
    the group finished a later record; None for `later_reason`. `groups_not_asked`: whether these read the target is not
    known."""

    topic: str
    topic_id: str
    partition_count: int
    target: TargetTopic
    sources: tuple[PartitionRecords, ...]
    records: int = 0
    record_bytes: int
    largest_bytes: int
    keyless: int
    oldest_ms: int | None
    newest_ms: int | None
    by_cause: tuple[CauseCount, ...]
    unread: tuple[PartitionRecords, ...]
    readers: tuple[TopicReader, ...]
    groups_not_asked: tuple[str, ...]
    put_back_before: int
    later_finished: int | None
    later_reason: str | None
    is_history_whole: bool

    @property
    def group_id(self) -> str:
        return self.group_ids[0]

    @property
    def keeps_partitions(self) -> bool:
        """Whether each record goes into the partition with the number of its own."""
        return self.partition_count == self.target.partition_count

    @property
    def in_words(self) -> str:
        return f"put back {counted(self.count, 'record')} into {self.target.topic}; {self._who}"

    @property
    def count(self) -> int:
        """How many records the list has, by the list itself."""
        return sum(each.records for each in self.sources)

    @property
    def _who(self) -> str:
        others = [each.group_id for each in self.readers if each.group_id != self.group_id]
        is_own = len(others) < len(self.readers)
        if not self.readers:
            return "no group reads it yet"
        own = f"{self.group_id} gets them again" if is_own else f"{self.group_id} does not read it"
        return f"{own}, {f'so do {few(others)}' if is_own else few(others)}" if others else f"{own}, no other group"

    def derived(self) -> dict[str, Any]:
        about = {"kind": KIND, "records": self.count, "notices": by_severity(_notices(self))}
        return {**ChangePlan.derived(self), **about}


def _notices(plan: RedrivePlan) -> Iterator[Notice]:
    if not plan.count:
        yield Notice(Severity.REFUSAL, "nothing_to_put_back", "no archived record that was asked for can be read")
    yield from (Notice(*found, topic=plan.target.topic) for found in _about_target(plan))
    yield from (Notice(*found, group_id=plan.group_id) for found in _about_records(plan))
    for group_id in plan.groups_not_asked:
        text = "its coordinator does not answer: it is not known whether the group reads the target"
        yield Notice(Severity.WARNING, "group_not_asked", text, group_id=group_id)
    for each in plan.unread:
        text = f"{counted(each.records, 'archived record')} not put back: {each.reason}"
        yield Notice(Severity.WARNING, "not_put_back", text, plan.group_id, plan.topic, each.partition)


def _about_target(plan: RedrivePlan) -> Iterator[Found]:
    target = plan.target
    if target.topic.startswith("__"):
        yield Severity.REFUSAL, "internal_topic", "records are never put into an internal topic"
    if target.is_compacted and plan.keyless:
        text = f"it is compacted, and {counted(plan.keyless, 'record')} without a key cannot be written"
        yield Severity.REFUSAL, "no_key", text
    elif target.is_compacted:
        text = "it is compacted: a record that is put back replaces newer values of its key"
        yield Severity.SERIOUS, "replaces_newer", text
    if target.most_bytes is not None and plan.largest_bytes + _FRAME_BYTES > target.most_bytes:
        text = f"the largest record has {plan.largest_bytes:,} bytes, and max.message.bytes is {target.most_bytes:,}"
        yield Severity.REFUSAL, "too_large", text
    if not plan.keeps_partitions:
        text = f"it has {counted(target.partition_count, 'partition')}, not {plan.partition_count}: keys choose theirs"
        yield Severity.WARNING, "other_partitions", f"{text}, as in Kafka's own clients (murmur2)"
    limit = target.retention_ms
    if limit is not None and limit >= 0 and plan.oldest_ms is not None and plan.oldest_ms + limit < plan.created_at_ms:
        text = f"records from {instant_text(plan.oldest_ms)} on keep their times, and retention.ms is {limit}"
        yield Severity.SERIOUS, "older_than_retention", f"{text}: Kafka may delete them before a group gets them"
    others = [each for each in plan.readers if each.group_id != plan.group_id]
    if others:
        names = few([f"{each.group_id} ({each.group_type})" for each in others])
        text = f"{counted(len(others), 'other group')} get the records too: {names}; --to names a topic of its own"
        yield Severity.SERIOUS, "other_groups", text


def _about_records(plan: RedrivePlan) -> Iterator[Found]:
    if plan.later_finished:
        text = f"of {counted(plan.later_finished, 'key')} the group finished later records already"
        yield Severity.SERIOUS, "later_finished", f"{text}: these records come out of order"
    elif plan.later_finished is None:
        text = f"whether the group finished later records of the same keys is not known: {plan.later_reason}"
        yield Severity.WARNING, "order_unknown", text
    if plan.put_back_before:
        text = f"{counted(plan.put_back_before, 'record')} put back before"
        yield Severity.SERIOUS, "put_back_before", text
    if not plan.is_history_whole:
        text = "state records are missing in the history, or newer ones are not in it: it may lack archived records"
        yield Severity.WARNING, "history_not_whole", text


class RecordList:
    """The records of a plan by their numbers, from 0 on."""

    def __init__(self, plan: RedrivePlan) -> None:
        self._rows = [(own.partition, span) for own in plan.sources for span in own.ranges]
        self._starts = [*accumulate((last - first + 1 for _, (first, last) in self._rows), initial=0)]

    def place(self, number: int) -> tuple[int, int]:
        """Partition and offset of a record in the source."""
        at = bisect_right(self._starts, number) - 1
        partition, (first, _) = self._rows[at]
        return partition, first + number - self._starts[at]

    def ranges(self, parts: Iterable[Span]) -> Iterator[tuple[int, list[Span]]]:
        """The offsets of these numbers (ascending, both ends inclusive), partition by partition."""
        spans = ((first, last, bisect_right(self._starts, first) - 1) for first, last in parts)
        rows = (
            (self._rows[at][0], (self.place(max(first, self._starts[at]))[1], self.place(min(last, end - 1))[1]))
            for first, last, begin in spans
            for at, end in enumerate(self._starts[begin + 1 :], begin)
            if self._starts[at] <= last
        )
        for partition, own in groupby(rows, itemgetter(0)):
            yield partition, [span for _, span in own]
