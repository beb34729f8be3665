"""Whether a plan says what its request and the cluster give: anybody can edit a plan and hash it again. Pure.

The plan is made again from facts as they are now, and compared. Its own are the ends of the log: records came since,
and a log never goes back, so that they count as long as they lie within it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.change.collection.facts import PartitionFacts, Snapshot, TargetOffset, TargetOffsets
from acktrail.change.planning.change_plan import PartitionPlan
from acktrail.change.planning.impact import Impact
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.plan_checks import notices_of_branches
from acktrail.change.planning.plan_file import to_json_value
from acktrail.change.planning.reset_plan import ResetPlan, build_plan, planned_rows, with_totals
from acktrail.change.request.reset_request import StrategyKind

RULE: Final = "judged_otherwise"
OWN_OFFSETS: Final = frozenset({StrategyKind.FROM_FILE, StrategyKind.MIGRATE})
"""Strategies whose offsets nothing here has but the plan: they are what is asked for."""
_LEARNED: Final = frozenset(
    {
        *("acknowledgements_forgotten", "archived_forgotten", "acknowledgements_known", "archived_known"),
        *("passed_acknowledged", "passed_archived", "passed_unknown", "known_since_ms", "reason"),
    }
)
"""Numbers that an export in between may complete."""


def own_offsets(plan: ResetPlan) -> TargetOffsets:
    """The offsets that the plan itself names."""
    found: dict[str, dict[tuple[str, int], TargetOffset]] = {}
    for row in plan.partitions:
        given = TargetOffset(offset=row.wanted_offset, carried=row.carried)
        found.setdefault(row.group_id, {})[row.topic, row.partition] = given
    return found


def as_planned(plan: ResetPlan, now: Snapshot, given: TargetOffsets) -> Snapshot:
    """`now` with the ends of the logs as the plan has them, and with the offsets that are `given`."""
    rows = {row.key: row for row in plan.partitions}

    def then(facts: PartitionFacts) -> PartitionFacts:
        row = rows[facts.key]
        start, end = _within(row, facts)
        is_later = facts.offset_at is not None and end is not None and facts.offset_at >= end
        own = given.get(facts.group_id, {}).get((facts.topic, facts.partition), TargetOffset())
        return replace(
            facts,
            log_start_offset=start,
            log_end_offset=end,
            offset_at=None if is_later else facts.offset_at,
            given=own,
            deleted=own.deleted,
        )

    return replace(now, partitions=tuple(then(facts) for facts in now.partitions))


def _within(row: PartitionPlan, now: PartitionFacts) -> tuple[int | None, int | None]:
    start, end = now.log_start_offset, now.log_end_offset
    if start is not None and row.log_start_offset is not None and row.log_start_offset <= start:
        start = row.log_start_offset
    if end is not None and row.log_end_offset is not None and row.log_end_offset <= end:
        end = row.log_end_offset
    return start, end


def differences(plan: ResetPlan, rows: Sequence[PartitionPlan], snapshot: Snapshot) -> tuple[Notice, ...]:
    """Refusals for every statement of `plan` about `rows` that `snapshot` (`as_planned`) does not give, and for every
    notice that it gives and `plan` lacks. Branches are asked about `rows` alone: what is left out stays as it is."""
    fresh = build_plan(
        plan.request,
        replace(snapshot, checks=()),
        plan_id=plan.plan_id,
        created_by=plan.created_by,
        undoes=plan.undoes,
    )
    now = {row.key: row for row in fresh.partitions}
    keys, groups = {row.key for row in rows}, {row.group_id for row in rows}
    found = [Notice(Severity.REFUSAL, RULE, text, *row.key) for row in rows for text in _on_row(row, now[row.key])]
    found += [
        Notice(Severity.REFUSAL, one.rule, one.text, one.group_id, one.topic, one.partition)
        for one in _unsaid(plan, [*fresh.notices, *_of_branches(plan, snapshot, keys)])
        if one.group_id is None or (one.group_id in groups and (one.partition is None or _key(one) in keys))
    ]
    if with_totals(plan) != plan:
        found.append(Notice(Severity.REFUSAL, RULE, "its sums are not those of its share partitions"))
    if _kind(plan) != _kind(fresh):
        found.append(Notice(Severity.REFUSAL, RULE, f"its kind is {plan.kind}, and its request gives another"))
    return tuple(found)


def _of_branches(plan: ResetPlan, snapshot: Snapshot, keys: Collection[tuple[str, str, int]]) -> Iterator[Notice]:
    """What branches say when `keys` alone are sent."""
    sent = tuple(facts for facts in snapshot.partitions if facts.key in keys)
    left = tuple(facts for facts in snapshot.partitions if facts.key not in keys)
    snapshot = replace(snapshot, partitions=sent, staying=(*snapshot.staying, *left))
    return notices_of_branches(plan.request, snapshot, planned_rows(plan.request, snapshot))


def _key(notice: Notice) -> tuple[str | None, str | None, int | None]:
    return notice.group_id, notice.topic, notice.partition


def _kind(plan: ResetPlan) -> tuple[object, ...]:
    return plan.kind, plan.undoes == (
        plan.request.strategy.source if plan.request.strategy.kind is StrategyKind.TO_SNAPSHOT else None
    )


def _unsaid(plan: ResetPlan, now: Iterable[Notice]) -> Iterator[Notice]:
    """The notices of `now` that `plan` lacks."""
    said = {(one.severity, one.rule, *_key(one)) for one in plan.notices}
    return (
        one for one in now if one.severity is not Severity.INFO and (one.severity, one.rule, *_key(one)) not in said
    )


def _on_row(row: PartitionPlan, now: PartitionPlan) -> Iterator[str]:
    for name in ("wanted_offset", "target_offset", "clamp", "carried"):
        if getattr(row, name) != getattr(now, name):
            yield f"{name} {getattr(row, name)} does not follow from {name.split('_')[0]} {getattr(now, name)} now"
            return
    if not _agree(row.impact, now.impact):
        yield f"its numbers are not those of now: {_first_difference(row.impact, now.impact)}"


def _agree(said: Impact | None, now: Impact | None) -> bool:
    if said is None or now is None:
        return said is now
    if any(getattr(said, name) != getattr(now, name) for name in _numbers(said) if name not in _LEARNED):
        return False
    is_less = (said.passed_unknown or 0) >= (now.passed_unknown or 0)
    names = ("acknowledgements_known", "archived_known", "passed_acknowledged", "passed_archived")
    is_less &= all((getattr(said, name) or 0) <= (getattr(now, name) or 0) for name in names)
    exact = ("acknowledgements_forgotten", "archived_forgotten")
    return is_less and all(getattr(said, name) in (None, getattr(now, name)) for name in exact)


def _numbers(impact: Impact) -> Mapping[str, Any]:
    found: Mapping[str, Any] = to_json_value(impact)
    return found


def _first_difference(said: Impact | None, now: Impact | None) -> str:
    if said is None or now is None:
        return "one of them has none"
    name = next(name for name in _numbers(said) if getattr(said, name) != getattr(now, name))
    return f"{name} {getattr(said, name)}, and {getattr(now, name)}"
