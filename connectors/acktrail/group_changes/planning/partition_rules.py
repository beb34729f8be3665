"""The notices about share partitions of a plan. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.group_changes.collection.facts import PartitionFacts, Snapshot, TopicFacts
from acktrail.group_changes.planning.impact import Impact
from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.group_changes.planning.strategies import Clamp, Resolution
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind

_BACK_TO_BEFORE: Final = frozenset({StrategyKind.TO_SNAPSHOT, StrategyKind.TO_HISTORY})
"""What lies below their targets was finished at an earlier time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """A share partition, the target that was found for it, and what that does."""

    facts: PartitionFacts
    resolution: Resolution
    impact: Impact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    request: ResetRequest
    topics: Mapping[str, TopicFacts]
    new_groups: frozenset[str]
    """Groups that the reset makes."""

    def exists(self, facts: PartitionFacts) -> bool:
        topic = self.topics[facts.topic]
        return not topic.error_code and facts.partition < topic.partition_count


_Rule = Callable[[_Context, PlannedRow], Iterator[Notice]]


def notices_on_partitions(request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterator[Notice]:
    """Every notice about one share partition."""
    context = _Context(
        request=request,
        topics={topic.topic: topic for topic in snapshot.topics},
        new_groups=frozenset(group.group_id for group in snapshot.groups if group.is_missing),
    )
    for row in rows:
        rules = _RULES if context.exists(row.facts) else _RULES_WITHOUT_PARTITION
        for rule in rules:
            yield from rule(context, row)


def _on(row: PlannedRow, severity: Severity, rule: str, text: str) -> Notice:
    facts = row.facts
    return Notice(
        severity=severity, rule=rule, text=text, group_id=facts.group_id, topic=facts.topic, partition=facts.partition
    )


def _partition_missing(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    topic = context.topics[row.facts.topic]
    if not topic.error_code:
        text = f"there is no partition {row.facts.partition}: the topic has {topic.partition_count}"
        yield _on(row, Severity.REFUSAL, "unknown_partition", text)


def _same_topic(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    before, now = row.facts.given_topic_id, context.topics[row.facts.topic].topic_id
    if before is not None and before != now:
        text = f"the topic was deleted and recreated: its id was {before} and is {now}"
        yield _on(row, Severity.REFUSAL, "topic_recreated", text)


def _target(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    del context
    resolution = row.resolution
    if resolution.refusal is not None:
        yield _on(row, Severity.REFUSAL, *resolution.refusal)
    if resolution.clamp is not None and resolution.target is not None:
        text = f"offset {resolution.wanted} is {_WHERE[resolution.clamp]}: {resolution.target} is taken"
        yield _on(row, Severity.WARNING, "clamped", text)
    if resolution.note is not None:
        yield _on(row, Severity.WARNING, *resolution.note)


_WHERE: Final = {
    Clamp.BELOW_LOG_START: "below the start of the log",
    Clamp.ABOVE_LOG_END: "beyond the end of the log",
}


def _state(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    facts = row.facts
    if facts.state_reason is not None:
        if not context.request.without_state:
            yield _on(row, Severity.REFUSAL, "state_unreadable", f"its state is not known: {facts.state_reason}")
        return
    recorded = None if facts.state is None else facts.state.start_offset
    if recorded != facts.start_offset:
        text = (
            f"the state topic has start offset {_said(recorded)}, the broker says {_said(facts.start_offset)}: "
            "something is at work; plan again"
        )
        yield _on(row, Severity.REFUSAL, "state_disagrees", text)


def _said(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _skips(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    impact = row.impact
    if impact is None or impact.skipped == 0 or row.facts.group_id in context.new_groups:
        return
    if context.request.strategy.kind in _BACK_TO_BEFORE:
        text = f"records before {row.resolution.target} are skipped: the group was done with them then"
        yield _on(row, Severity.WARNING, "passed_before", text)
        return
    if impact.skipped is None:
        text = f"records before {row.resolution.target} may be skipped for good, how many is not known: {impact.reason}"
    else:
        text = f"{impact.skipped} records that are not finished are skipped for good"
    if context.request.allow_skip:
        yield _on(row, Severity.SERIOUS, "skips", text)
    else:
        yield _on(row, Severity.REFUSAL, "would_skip", f"{text} (--allow-skip allows it)")


def _delivers_again(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    del context
    impact = row.impact
    if impact is None:
        return
    known = impact.archived_forgotten if impact.archived_known is None else impact.archived_known
    if known:
        least = "" if impact.archived_forgotten is not None else "at least "
        text = f"{least}{known} archived records (given up on: poison, maybe) are delivered again"
        yield _on(row, Severity.WARNING, "archived_again", text)
    if impact.delivered_again:
        text = f"{impact.delivered_again} records that the group was done with are delivered again"
        yield _on(row, Severity.WARNING, "delivered_again", text)


def _moved_on(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    """For an undo: whether the group, or anybody else, changed the share partition since the plan left it."""
    facts = row.facts
    left_at, batches = facts.given_left_at, () if facts.state is None else facts.state.batches
    if left_at is None or facts.given is None or (facts.start_offset == left_at and not batches):
        return
    work = f", and records from there on were delivered ({len(batches)} batches)" if batches else ""
    text = f"it moved on since the plan left it at {left_at}: the start offset is {_said(facts.start_offset)}{work}"
    if context.request.allow_moved_on:
        yield _on(row, Severity.SERIOUS, "moved_on", text)
    else:
        yield _on(row, Severity.REFUSAL, "moved_on", f"{text} (--allow-moved-on allows it)")


def _new_to_group(context: _Context, row: PlannedRow) -> Iterator[Notice]:
    facts, request = row.facts, context.request
    if facts.is_described or facts.group_id in context.new_groups or request.strategy.kind is StrategyKind.TO_SNAPSHOT:
        return
    text = "the group has no state there: the reset gives it some, whether it is subscribed or not"
    yield _on(row, Severity.WARNING, "new_to_group", text)


_RULES: Final[tuple[_Rule, ...]] = (_same_topic, _target, _state, _skips, _delivers_again, _moved_on, _new_to_group)
_RULES_WITHOUT_PARTITION: Final[tuple[_Rule, ...]] = (_partition_missing,)
