"""What forbids a plan, what it costs, what is good to know: cluster, groups and topics. Pure.

A refusal has its rule's name; nothing is sent while there is one, unless the rest is asked for. Allowances (to skip
records, to make a group, to go without the state topic) turn some refusals into serious warnings. The rules about share
partitions are in `partition_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from acktrail.group_changes.collection.facts import GroupFacts, Snapshot, TopicFacts
from acktrail.group_changes.planning.notices import Notice, Severity, by_severity
from acktrail.group_changes.planning.partition_rules import PlannedRow, notices_on_partitions
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind

_UNKNOWN_TOPIC: Final = 3
_MEMBERS_SHOWN: Final = 5

_PlanRule = Callable[[ResetRequest, Snapshot], Iterator[Notice]]


def notices_on(request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> tuple[Notice, ...]:
    """Every notice, the worst first, then by group, topic and partition."""
    found = [*notices_before(request, snapshot), *_nothing(request, snapshot), *_passed(rows)]
    return by_severity([*found, *notices_on_partitions(request, snapshot, rows)])


def notices_before(request: ResetRequest, snapshot: Snapshot) -> tuple[Notice, ...]:
    """The notices that need no share partition: about the cluster, the groups and the topics."""
    found = [notice for rule in _PLAN_RULES for notice in rule(request, snapshot)]
    found += [notice for group in snapshot.groups for notice in _on_group(request, group)]
    found += [notice for topic in snapshot.topics for notice in _on_topic(topic)]
    return by_severity(found)


def _release(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    del request
    if not snapshot.cluster.resets_share_groups:
        text = (
            f"Kafka {snapshot.cluster.release} cannot reset share groups (4.1 answers without an error and does "
            "nothing, older ones do not know the request): 4.2 and later can"
        )
        yield Notice(severity=Severity.REFUSAL, rule="unsupported_release", text=text)


def _state_topic(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    reason = snapshot.cluster.state_reason
    if reason is None:
        return
    if request.without_state:
        text = f"nothing is counted, and only the broker's description can be verified: {reason}"
        yield Notice(severity=Severity.SERIOUS, rule="without_state", text=text)
    else:
        text = f"what is forgotten or skipped is not known: {reason} (--without-state plans all the same)"
        yield Notice(severity=Severity.REFUSAL, rule="state_unreadable", text=text)


def _unmatched(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    del request
    for pattern in snapshot.unmatched:
        yield Notice(severity=Severity.REFUSAL, rule="no_such_group", text=f"no share group matches {pattern!r}")


def _nothing(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    del request
    if not snapshot.partitions and not any(topic.error_code for topic in snapshot.topics):
        yield Notice(severity=Severity.REFUSAL, rule="nothing_to_reset", text="no share partition is in the scope")


def _passed(rows: Sequence[PlannedRow]) -> Iterator[Notice]:
    """One notice for each reason why the numbers of forgotten acknowledgements and archived records are not known."""
    unknown: dict[str, list[int]] = {}
    for row in rows:
        if row.impact is not None and row.impact.passed_unknown:
            unknown.setdefault(row.impact.reason or "", []).append(row.impact.passed_unknown)
    for reason, numbers in unknown.items():
        text = (
            f"{sum(numbers)} records below the start offsets of {len(numbers)} share partition(s) are delivered again, "
            f"and how many of them were acknowledged or archived is not known for sure: {reason}"
        )
        yield Notice(severity=Severity.WARNING, rule="passed_unknown", text=text)


def _epoch(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    del request
    if snapshot.cluster.resets_share_groups:
        text = (
            f"Kafka {snapshot.cluster.release} may leave the state epoch as it is: a leader with an old copy of the "
            "state is not fenced then, so the start offsets are watched for a while afterwards"
        )
        yield Notice(severity=Severity.INFO, rule="epoch_not_bumped", text=text)


def _undo(request: ResetRequest, snapshot: Snapshot) -> Iterator[Notice]:
    del snapshot
    if request.strategy.kind is StrategyKind.TO_SNAPSHOT:
        text = (
            "start offsets only: what single records were (acknowledged, archived, released, their delivery counts) "
            "cannot come back, Kafka has no request for it"
        )
        yield Notice(severity=Severity.WARNING, rule="states_stay_forgotten", text=text)


_PLAN_RULES: Final[tuple[_PlanRule, ...]] = (_release, _state_topic, _unmatched, _undo, _epoch)


def _on_group(request: ResetRequest, group: GroupFacts) -> Iterator[Notice]:
    def refusal(rule: str, text: str) -> Notice:
        return Notice(severity=Severity.REFUSAL, rule=rule, text=text, group_id=group.group_id)

    if group.is_missing:
        yield _missing_group(request, group)
    elif group.error_code:
        yield refusal("group_refused", f"the group cannot be described: {group.error}")
    elif group.members:
        more = " ..." if len(group.members) > _MEMBERS_SHOWN else ""
        who = ", ".join(repr(member) for member in group.members[:_MEMBERS_SHOWN]) + more
        yield refusal("group_not_empty", f"the group has {len(group.members)} members ({who}): stop them first")
    if group.rights is not None and "READ" not in group.rights:
        yield refusal("unauthorized_group", "READ on the group is missing: grant it to this principal")


def _missing_group(request: ResetRequest, group: GroupFacts) -> Notice:
    if group.is_other_type:
        severity, rule, text = Severity.REFUSAL, "not_a_share_group", "a group of another type has this id"
    elif request.allow_create:
        severity, rule, text = Severity.SERIOUS, "group_is_made", "there is no such share group: the reset creates it"
    else:
        severity, rule = Severity.REFUSAL, "unknown_group"
        text = "there is no such share group (--allow-create creates it)"
    return Notice(severity=severity, rule=rule, text=text, group_id=group.group_id)


def _on_topic(topic: TopicFacts) -> Iterator[Notice]:
    def refusal(rule: str, text: str) -> Notice:
        return Notice(severity=Severity.REFUSAL, rule=rule, text=text, topic=topic.topic)

    if topic.error_code == _UNKNOWN_TOPIC:
        near = f"; did you mean {', '.join(repr(name) for name in topic.nearest)}?" if topic.nearest else ""
        yield refusal("unknown_topic", f"there is no topic {topic.topic!r}{near}")
    elif topic.error_code:
        yield refusal("topic_refused", f"the topic cannot be described: {topic.error}")
    elif topic.is_internal:
        yield refusal("internal_topic", "it is one of Kafka's own topics")
    elif topic.rights is not None and "READ" not in topic.rights:
        yield refusal("unauthorized_topic", "READ on the topic is missing: grant it to this principal")
