"""The plan of a reset: what would happen to every share partition; and the comparison with the cluster and the request
before it is sent, because anybody can edit a plan and hash it again. Pure.

For that the plan is made again from facts as they are now, and compared. The ends of the log are the plan's own:
records came since, and a log never goes back, so they count while they lie within it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from acktrail.change.plan.change_plan import ChangePlan, PartitionPlan
from acktrail.change.plan.impact import Impact, impact_of, resolve
from acktrail.change.plan.notices import Notice, RefusedParts, Severity, by_severity, unsaid
from acktrail.change.plan.reset_rules import (
    PlanCheck,
    PlannedRow,
    notices_of_branches,
    notices_on,
    refusals_of_group,
    refusals_of_topic,
)
from acktrail.change.plan.snapshot_facts import (
    GroupFacts,
    PartitionFacts,
    PartitionOffsets,
    PartitionState,
    Snapshot,
    TargetOffset,
    TargetOffsets,
    TopicFacts,
)
from acktrail.change.request.reset_request import ResetRequest, StrategyKind
from acktrail.model.batches import StateBatch, combine_state_batches

_Change = Iterator[tuple[str, str]]
"""Rule and text of refusals."""
RULE: Final = "judged_otherwise"
OWN_OFFSETS: Final = frozenset({StrategyKind.FROM_FILE, StrategyKind.MIGRATE})
"""Strategies whose offsets the user gives; only the plan has them."""
_LEARNED: Final = frozenset({"acknowledgements_known", "archived_known", "passed_acknowledged", "passed_archived"})
"""Numbers that an export in between may raise, where they are lower bounds."""
_COMPARED: Final = tuple(each.name for each in fields(Impact) if each.name not in ("reason", "known_since_ms"))
UNDO: Final = "undo"
_KINDS: Final = {StrategyKind.TO_SNAPSHOT: UNDO, StrategyKind.MIGRATE: "migration"}
"""A migration is the kind of a branch, which derives from the kind of resets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan(ChangePlan):
    """The plan for a `request`."""

    request: ResetRequest

    @property
    def in_words(self) -> str:
        return self.request.strategy.text

    def derived(self) -> dict[str, Any]:
        strategy, asked = self.request.strategy, ("reason", "requested_by")
        undoes = (strategy.source or "") if strategy.kind is StrategyKind.TO_SNAPSHOT else None
        about = {"kind": _KINDS.get(strategy.kind, "reset"), "undoes": undoes}
        return {**ChangePlan.derived(self), **about, **{name: getattr(self.request, name) for name in asked}}

    def executable(self, *, partial: bool) -> tuple[PartitionPlan, ...]:
        """Return what may be sent: everything, or (`partial`) what no refusal is about."""
        if self.refusals and not partial:
            return ()
        refused = RefusedParts(self.refusals)
        return tuple(row for row in self.partitions if row.key not in refused and row.target_offset is not None)


def build_plan(
    request: ResetRequest, snapshot: Snapshot, checks: Iterable[PlanCheck] = (), *, plan_id: str, created_by: str
) -> ResetPlan:
    """Return the plan for what was found, without its hash. The same arguments give the same plan. Refusals are part of
    it: a plan that may not be carried out still says what it would do, if that is known."""
    rows = planned_rows(request, snapshot)
    said = [*notices_on(request, snapshot, rows), *notices_of_branches(checks, request, snapshot, rows)]
    return ResetPlan(
        plan_id=plan_id,
        created_at_ms=snapshot.taken_at_ms,
        created_by=created_by,
        cluster=snapshot.cluster,
        request=request,
        groups=snapshot.groups,
        partitions=tuple(_partition_plan(row) for row in rows),
        notices=by_severity(said),
    )


def planned_rows(request: ResetRequest, snapshot: Snapshot) -> list[PlannedRow]:
    """Return the share partitions of `snapshot` with their targets and what these do."""

    def row(facts: PartitionFacts) -> PlannedRow:
        resolution = resolve(request.strategy, facts, request.out_of_range)
        return PlannedRow(facts=facts, resolution=resolution, impact=impact_of(facts, resolution.target))

    return [row(facts) for facts in snapshot.partitions]


def _partition_plan(row: PlannedRow) -> PartitionPlan:
    return PartitionPlan(
        **{each.name: getattr(row.facts, each.name) for each in fields(PartitionOffsets)},
        wanted_offset=row.resolution.wanted,
        target_offset=row.resolution.target,
        clamp=row.resolution.clamp,
        impact=row.impact,
    )


def with_notices(plan: ResetPlan, notices: Sequence[Notice]) -> ResetPlan:
    """Return `plan` with more notices, without a new hash."""
    return replace(plan, notices=by_severity([*plan.notices, *notices]))


def own_offsets(plan: ResetPlan) -> TargetOffsets:
    """Return the offsets that the plan itself names."""
    found: dict[str, dict[tuple[str, int], TargetOffset]] = {}
    for row in plan.partitions:
        found.setdefault(row.group_id, {})[row.topic, row.partition] = TargetOffset(offset=row.wanted_offset)
    return found


def as_planned(plan: ResetPlan, now: Snapshot, given: TargetOffsets) -> Snapshot:
    """Return `now` with the ends of the logs as the plan has them, and with the offsets that are `given`."""
    rows = {row.key: row for row in plan.partitions}

    def then(facts: PartitionFacts) -> PartitionFacts:
        row = rows[facts.key]
        start, end = _within(row, facts)
        is_later = facts.offset_at is not None and end is not None and facts.offset_at >= end
        at = None if is_later else facts.offset_at
        own = given.get(facts.group_id, {}).get((facts.topic, facts.partition), TargetOffset())
        return replace(facts, log_start_offset=start, log_end_offset=end, offset_at=at, given=own)

    return replace(now, partitions=tuple(then(facts) for facts in now.partitions))


def _within(row: PartitionPlan, now: PartitionFacts) -> tuple[int | None, int | None]:
    start, end = now.log_start_offset, now.log_end_offset
    if start is not None and row.log_start_offset is not None and row.log_start_offset <= start:
        start = row.log_start_offset
    if end is not None and row.log_end_offset is not None and row.log_end_offset <= end:
        end = row.log_end_offset
    return start, end


def differences(
    plan: ResetPlan, rows: Sequence[PartitionPlan], snapshot: Snapshot, checks: Iterable[PlanCheck] = ()
) -> tuple[Notice, ...]:
    """Return a refusal for every statement of `plan` about `rows` that `snapshot` (`as_planned`) does not give, and for
    every notice that it gives and `plan` lacks. Branches judge only `rows`: what is left out stays as it is."""
    fresh = build_plan(plan.request, snapshot, plan_id=plan.plan_id, created_by=plan.created_by)
    now = {row.key: row for row in fresh.partitions}
    keys, groups = {row.key for row in rows}, {row.group_id for row in rows}
    found = [Notice(Severity.REFUSAL, RULE, text, *row.key) for row in rows for text in _on_row(row, now[row.key])]
    found += [
        Notice(Severity.REFUSAL, one.rule, one.text, one.group_id, one.topic, one.partition)
        for one in unsaid(plan.notices, [*fresh.notices, *_of_branches(checks, plan, snapshot, keys)])
        if one.group_id is None or (one.group_id in groups and (one.partition is None or one.place in keys))
    ]
    return tuple(found)


def _of_branches(
    checks: Iterable[PlanCheck], plan: ResetPlan, snapshot: Snapshot, keys: Collection[tuple[str, str, int]]
) -> Iterator[Notice]:
    """Return the notices of branches if only `keys` are sent."""
    sent = tuple(facts for facts in snapshot.partitions if facts.key in keys)
    left = tuple(facts for facts in snapshot.partitions if facts.key not in keys)
    snapshot = replace(snapshot, partitions=sent, staying=(*snapshot.staying, *left))
    return notices_of_branches(checks, plan.request, snapshot, planned_rows(plan.request, snapshot))


def _on_row(row: PartitionPlan, now: PartitionPlan) -> Iterator[str]:
    for name in ("wanted_offset", "target_offset", "clamp"):
        if getattr(row, name) != getattr(now, name):
            yield f"{name} {getattr(row, name)} does not follow from {name.split('_')[0]} {getattr(now, name)} now"
            return
    other = _difference(row.impact, now.impact)
    if other is not None:
        yield f"its numbers are not those of now: {other}"


def _difference(said: Impact | None, now: Impact | None) -> str | None:
    """Return the first number of an impact that differs from that of now and is not more careful."""
    if said is None or now is None:
        return None if said is now else "one of them has none"
    for name in _COMPARED:
        before, after = getattr(said, name), getattr(now, name)
        is_careful = before >= after if name == "passed_unknown" else name in _LEARNED and before <= after
        if before != after and (said.is_exact or not is_careful):
            return f"{name} {before}, and {after}"
    return None


def changes_since_plan(plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot) -> tuple[Notice, ...]:
    """Return a refusal for everything that is not as `plan` has it and matters to `rows`; none: it may be carried out.

    What may change: the log's end, a snapshot of the same state (a quiet shard writes some), a leader epoch, the
    group's epoch. Everything else makes the plan's numbers wrong. Rights are those of the caller: READ on every group
    and topic of `rows`.
    """
    other = next(_on_cluster(plan, now), None)
    if other is not None:
        return (Notice(Severity.REFUSAL, *other),)
    groups = {group.group_id: group for group in now.groups}
    topics = {topic.topic: topic for topic in now.topics}
    current = {facts.key: facts for facts in now.partitions}
    wanted = {row.group_id for row in rows}
    found = [
        Notice(Severity.REFUSAL, *one, group_id=group.group_id)
        for group in plan.groups
        if group.group_id in wanted
        for one in _on_group(group, groups[group.group_id])
    ]
    for topic, row in {row.topic: row for row in rows}.items():
        found += [Notice(Severity.REFUSAL, *one, topic=topic) for one in _on_topic(row, topics[topic])]
    for row in rows:
        changes = _on_partition(row, current[row.key])
        found += [Notice(Severity.REFUSAL, rule, text, *row.key) for rule, text in changes]
    return tuple(found)


def _on_cluster(plan: ResetPlan, now: Snapshot) -> _Change:
    if now.cluster.cluster_id != plan.cluster_id:
        yield "other_cluster", f"the plan is of cluster {plan.cluster_id}, this is cluster {now.cluster.cluster_id}"
    if now.cluster.state_topic_id != plan.cluster.state_topic_id and plan.cluster.state_topic_id is not None:
        yield "state_topic_changed", now.cluster.state_reason or "the state topic was recreated"
    if plan.cluster.resets_share_groups and not now.cluster.resets_share_groups:
        release = now.cluster.release
        yield "unsupported_release", f"the brokers are of release {release} now, which cannot reset share groups"


def _on_group(before: GroupFacts, now: GroupFacts) -> _Change:
    if now.is_missing != before.is_missing:
        yield "group_changed", f"the group is {'gone' if now.is_missing else 'there now'}"
        return
    yield from ((rule, text) for _, rule, text in refusals_of_group(now, "READ", is_made=True))
    if not now.error_code and (now.group_epoch or 0) < (before.group_epoch or 0):
        yield "group_recreated", "the group was deleted since the plan was made, and made again"


def _on_topic(row: PartitionPlan, now: TopicFacts) -> _Change:
    yield from ((rule, text) for _, rule, text in refusals_of_topic(now))
    if now.topic_id not in (None, row.topic_id):
        yield "topic_recreated", "the topic was deleted and recreated"
    elif now.topic_id and now.partition_count != row.partition_count:
        text = f"the topic had {row.partition_count} partitions and has {now.partition_count}"
        yield "partition_count_changed", text


def _on_partition(row: PartitionPlan, now: PartitionFacts) -> _Change:
    target = row.target_offset or 0
    if now.log_start_offset is None or now.log_end_offset is None:
        yield "log_unknown", f"the ends of the log are not known: {now.log_error}"
    elif now.log_start_offset > target:
        yield "log_start_moved", f"the log starts at {now.log_start_offset} now, after the target {target}"
    elif now.log_end_offset < target:
        yield "log_truncated", f"the log ends at {now.log_end_offset} now, before the target {target}"
    before = row.state
    if before is not None and now.deleted_at is not None and now.deleted_at > before.record_offset:
        yield "state_recreated", "its state was deleted since the plan was made, and may have been made again"
    elif now.start_offset != row.start_offset:
        yield "start_offset_moved", f"the start offset was {row.start_offset} and is {now.start_offset}"
    elif (now.state_reason is None) != (row.state_reason is None):
        yield "state_moved", now.state_reason or "the state topic can be read now"
    elif now.state_reason is None and state_content(now.state) != state_content(row.state):
        yield "state_moved", "records were acknowledged, released or archived since the plan was made"


def state_content(state: PartitionState | None) -> tuple[object, ...] | None:
    """Return the content of a state, without how often and by which leader it was written."""
    if state is None:
        return None
    batches = [
        StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
        for first, last, kind, count in state.batches
    ]
    combined = combine_state_batches(batches, (), state.start_offset)
    return state.start_offset, state.state_epoch, state.delivery_complete_count, combined
