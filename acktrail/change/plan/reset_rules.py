"""Rules of resets: what forbids one, what it costs, what is good to know, of cluster, groups, topics and share
partitions. Pure.

A refusal has its rule's name. Nothing is sent while there is one, unless the request asks for the rest. Allowances (to
skip records, to create a group, to go without the state topic) turn some refusals into serious warnings.

Branches have rules of their own, which the trunk does not know. A branch names in `plan_check` what makes its
`PlanCheck` from the tables (None: there are none), the id of the cluster, and the topics of the plan by name. It reads
what it needs then, and nothing later. It judges a plan when it is made, and again what would be sent before the plan is
approved or carried out. A plan that lacks one of its notices, unless that is only good to know, is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from acktrail.branches import loaded
from acktrail.change.plan.impact import Clamp, CountUnit, Impact, Resolution
from acktrail.change.plan.notices import Found, Notice, Severity, by_severity
from acktrail.change.plan.snapshot_facts import GroupFacts, PartitionFacts, Snapshot, TopicFacts
from acktrail.change.request.reset_request import WERE_THERE, ResetRequest, StrategyKind
from acktrail.config import TablesConfig

_UNKNOWN_TOPIC: Final = 3
_MEMBERS_SHOWN: Final = 5
_GIVES_STATE: Final = frozenset({StrategyKind.TO_SNAPSHOT, StrategyKind.MIGRATE})
"""An undo and a migration put groups where they were: branches only warn then."""
_WHERE: Final = {Clamp.BELOW_LOG_START: "below the start of the log", Clamp.ABOVE_LOG_END: "beyond the end of the log"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """A share partition, the target that was found for it, and its impact."""

    facts: PartitionFacts
    resolution: Resolution
    impact: Impact | None


def notices_on(request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> tuple[Notice, ...]:
    """Return every notice, the worst first, then by group, topic and partition."""
    found = [Notice(*one) for one in _on_cluster(request, snapshot)]
    found += [Notice(*one, group_id=group.group_id) for group in snapshot.groups for one in _on_group(request, group)]
    found += [Notice(*one, topic=topic.topic) for topic in snapshot.topics for one in refusals_of_topic(topic)]
    for (group_id, topic_id), count in Counter((key.group_id, key.topic_id) for key in snapshot.hidden).items():
        text = (
            f"{count} share partition(s) of the topic with this id are not in the plan, because DESCRIBE on the "
            "topic is missing"
        )
        found.append(Notice(Severity.REFUSAL, "hidden_topic", text, group_id, topic_id))
    found += [*_passed(rows), *_counts_offsets(rows)]
    if not snapshot.partitions and not any(topic.error_code for topic in snapshot.topics):
        found.append(
            Notice(Severity.REFUSAL, "nothing_to_reset", "the given topics and groups have no share partition")
        )
    topics = {topic.topic: topic for topic in snapshot.topics}
    for row in rows:
        facts = row.facts
        on_row = _on_partition(request, topics[facts.topic], row)
        found += [Notice(severity, rule, text, *facts.key) for severity, rule, text in on_row]
    return by_severity(found)


def _on_cluster(request: ResetRequest, snapshot: Snapshot) -> Iterator[Found]:
    release, reason = snapshot.cluster.release, snapshot.cluster.state_reason
    if not snapshot.cluster.resets_share_groups:
        text = (
            f"Kafka {release} cannot reset share groups (4.1 answers without an error and does "
            "nothing, older ones do not know the request): 4.2 and later can"
        )
        yield Severity.REFUSAL, "unsupported_release", text
    if reason is not None and request.without_state:
        text = f"records are not counted, and only the broker's description can be used for verification: {reason}"
        yield Severity.SERIOUS, "without_state", text
        if request.all_topics:
            text = (
                "topics that this principal may not DESCRIBE are left out, and acktrail cannot see whether there "
                "are any"
            )
            yield Severity.SERIOUS, "topics_unseen", text
    elif reason is not None:
        text = (
            f"it is unknown which records are skipped or delivered again: {reason} (--without-state plans without this)"
        )
        yield Severity.REFUSAL, "state_unreadable", text
    for pattern in snapshot.unmatched:
        yield Severity.REFUSAL, "no_such_group", f"no share group matches {pattern!r}"
    if request.strategy.kind is StrategyKind.TO_SNAPSHOT:
        text = (
            "only start offsets are restored: the state of single records (acknowledged, archived, released, "
            "delivery counts) cannot be restored, because Kafka has no request for it"
        )
        yield Severity.WARNING, "states_stay_forgotten", text


def _on_group(request: ResetRequest, group: GroupFacts) -> Iterator[Found]:
    if group.is_missing and request.allow_create and not group.is_other_type:
        yield Severity.SERIOUS, "group_is_made", "there is no such share group: the reset creates it"
    yield from refusals_of_group(group, "READ", is_made=request.allow_create)


def refusals_of_group(group: GroupFacts, right: str, *, is_made: bool | None = None) -> Iterator[Found]:
    """Yield what forbids a change of a group that needs the ACL operation `right` and no members. `is_made`: a missing
    group is created; None: it cannot be."""
    if group.is_missing and group.is_other_type:
        yield Severity.REFUSAL, "not_a_share_group", "a group of another type has this id"
    elif group.is_missing and not is_made:
        how = "" if is_made is None else " (--allow-create creates it)"
        yield Severity.REFUSAL, "unknown_group", f"there is no such share group{how}"
    elif group.is_missing:
        pass
    elif group.error_code:
        yield Severity.REFUSAL, "group_refused", f"the group cannot be described: {group.error}"
    elif group.members:
        who = ", ".join(map(repr, group.members[:_MEMBERS_SHOWN])) + " ..." * (len(group.members) > _MEMBERS_SHOWN)
        text = f"the group has {len(group.members)} members ({who}): stop them first"
        yield Severity.REFUSAL, "group_not_empty", text
    if group.rights is not None and right not in group.rights:
        yield Severity.REFUSAL, "unauthorized_group", f"{right} on the group is missing: grant it to this principal"


def refusals_of_topic(topic: TopicFacts) -> Iterator[Found]:
    """Yield what forbids a reset in a topic."""
    if topic.error_code == _UNKNOWN_TOPIC:
        near = f"; did you mean {', '.join(map(repr, topic.nearest))}?" if topic.nearest else ""
        yield Severity.REFUSAL, "unknown_topic", f"there is no topic {topic.topic!r}{near}"
    elif topic.error_code:
        yield Severity.REFUSAL, "topic_refused", f"the topic cannot be described: {topic.error}"
    elif topic.is_internal:
        yield Severity.REFUSAL, "internal_topic", "it is one of Kafka's own topics"
    elif topic.rights is not None and "READ" not in topic.rights:
        yield Severity.REFUSAL, "unauthorized_topic", "READ on the topic is missing: grant it to this principal"


def _passed(rows: Sequence[PlannedRow]) -> Iterator[Notice]:
    """Yield one notice for each reason why the numbers of forgotten acknowledgements and archived records are not
    known."""
    unknown: dict[tuple[str, CountUnit], list[int]] = defaultdict(list)
    for row in rows:
        if row.impact is not None and row.impact.passed_unknown:
            unknown[row.impact.reason or "", row.impact.unit].append(row.impact.passed_unknown)
    for (reason, unit), numbers in unknown.items():
        text = (
            f"{sum(numbers)} {unit} below the start offsets of {len(numbers)} share partition(s) are delivered again, "
            f"and it is uncertain how many of them were acknowledged or archived: {reason}"
        )
        yield Notice(Severity.WARNING, "passed_unknown", text)


def _counts_offsets(rows: Sequence[PlannedRow]) -> Iterator[Notice]:
    counted = [row for row in rows if row.impact is not None and row.impact.unit is CountUnit.OFFSETS]
    if counted:
        text = (
            f"the numbers of {len(counted)} share partition(s) count offsets, not records. They include "
            "transaction markers, aborted records and compacted records, because the log is long, a transaction is "
            "open, or acktrail may not read share.isolation.level of the group"
        )
        yield Notice(Severity.INFO, "offsets_not_records", text)


def _on_partition(request: ResetRequest, topic: TopicFacts, row: PlannedRow) -> Iterator[Found]:
    facts, before = row.facts, row.facts.given.topic_id
    if topic.error_code:
        return
    if facts.partition >= topic.partition_count:
        text = f"there is no partition {facts.partition}: the topic has {topic.partition_count}"
        yield Severity.REFUSAL, "unknown_partition", text
        return
    if before is not None and before != topic.topic_id:
        text = f"the topic was deleted and recreated: its id was {before} and is {topic.topic_id}"
        yield Severity.REFUSAL, "topic_recreated", text
    yield from _on_target(row.resolution)
    yield from _on_state(request, facts)
    if row.impact is not None:
        if row.impact.skipped != 0:
            yield _skips(request, row.resolution.target, row.impact)
        yield from _delivers_again(row.impact)
    yield from _moved_on(request, facts)
    if not (facts.is_described or facts.is_new_group or request.strategy.kind in _GIVES_STATE):
        text = "the group has no state there: the reset creates one, even if the group does not subscribe to the topic"
        yield Severity.WARNING, "new_to_group", text


def _on_target(resolution: Resolution) -> Iterator[Found]:
    if resolution.refusal is not None:
        yield Severity.REFUSAL, *resolution.refusal
    if resolution.clamp is not None and resolution.target is not None:
        text = f"offset {resolution.wanted} is {_WHERE[resolution.clamp]}: offset {resolution.target} is used instead"
        yield Severity.WARNING, "clamped", text
    if resolution.note is not None:
        yield Severity.WARNING, *resolution.note


def _on_state(request: ResetRequest, facts: PartitionFacts) -> Iterator[Found]:
    recorded = None if facts.state is None else facts.state.start_offset
    if facts.state_reason is not None:
        if not request.without_state:
            yield Severity.REFUSAL, "state_unreadable", f"its state is unknown: {facts.state_reason}"
    elif recorded != facts.start_offset:
        text = (
            f"the state topic has start offset {_text(recorded)}, the broker reports {_text(facts.start_offset)}: "
            "another process changes it now; make the plan again"
        )
        yield Severity.REFUSAL, "state_disagrees", text


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _skips(request: ResetRequest, target: int | None, impact: Impact) -> Found:
    if request.strategy.kind in WERE_THERE:
        count = "" if impact.skipped is None else f"{impact.skipped} "
        text = f"{count}records before {target} are skipped: the group had finished them at that time"
        return Severity.WARNING, "passed_before", text
    if impact.skipped is None:
        text = f"records before {target} may be skipped permanently; their number is unknown: {impact.reason}"
    else:
        text = f"{impact.skipped} {impact.unit} that are not finished are skipped permanently"
    if request.allow_skip:
        return Severity.SERIOUS, "skips", text
    return Severity.REFUSAL, "would_skip", f"{text} (--allow-skip allows it)"


def _delivers_again(impact: Impact) -> Iterator[Found]:
    if impact.archived_known:
        least = "" if impact.archived_forgotten is not None else "at least "
        text = f"{least}{impact.archived_known} archived {impact.unit} (possibly poison records) are delivered again"
        yield Severity.WARNING, "archived_again", text
    if impact.delivered_again:
        text = f"{impact.delivered_again} {impact.unit} that the group had finished are delivered again"
        yield Severity.WARNING, "delivered_again", text


def _moved_on(request: ResetRequest, facts: PartitionFacts) -> Iterator[Found]:
    """Yield, for an undo, the notice that the group or anybody else changed the share partition since the plan left
    it."""
    left_at, batches = facts.given.left_at, () if facts.state is None else facts.state.batches
    is_left = facts.given.is_left or left_at is not None
    if not is_left or facts.given.offset is None or (facts.start_offset == left_at and not batches):
        return
    work = f", and records from there on were delivered ({len(batches)} batches)" if batches else ""
    text = (
        f"it changed after the plan set it to {_text(left_at)}: the start offset is {_text(facts.start_offset)}{work}"
    )
    if request.allow_moved_on:
        yield Severity.SERIOUS, "moved_on", text
    else:
        yield Severity.REFUSAL, "moved_on", f"{text} (--allow-moved-on allows it)"


class PlanCheck(Protocol):
    """What one branch knows of the topics of a plan."""

    @property
    def whole_topics(self) -> Collection[str]:
        """The topics whose every partition it has to know, of each group: `Snapshot.staying` has those that the plan
        leaves as they are."""

    def notices(self, request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]) -> Iterable[Notice]:
        """Return the notices about `rows`. A refusal that `request` allows becomes a serious warning."""


def plan_checks(
    tables: TablesConfig | None, cluster_id: str, topics: Mapping[str, TopicFacts]
) -> tuple[PlanCheck, ...]:
    """Return the check of every branch that has one."""
    return tuple(make(tables, cluster_id, topics) for make in loaded("plan_check"))


def notices_of_branches(
    checks: Iterable[PlanCheck], request: ResetRequest, snapshot: Snapshot, rows: Sequence[PlannedRow]
) -> Iterator[Notice]:
    """Yield the notices of every check about `rows`."""
    for notice in (each for check in checks for each in check.notices(request, snapshot, rows)):
        if notice.severity is not Severity.REFUSAL:
            yield notice
        elif request.strategy.kind in _GIVES_STATE or notice.rule in request.allow:
            yield replace(notice, severity=Severity.SERIOUS)
        else:
            yield replace(notice, text=f"{notice.text} (--allow {notice.rule} allows it)")
