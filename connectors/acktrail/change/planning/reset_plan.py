"""The plan of a reset: what would happen to every share partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from acktrail.change.collection.facts import CarriedState, PartitionFacts, PartitionOffsets, Snapshot, sum_known
from acktrail.change.planning.change_plan import SUMMED, ChangePlan, PartitionPlan, Totals
from acktrail.change.planning.impact import Clamp, CountUnit, impact_of, resolve
from acktrail.change.planning.notices import Notice, RefusedParts, by_severity
from acktrail.change.planning.reset_rules import PlannedRow, notices_of_branches, notices_on
from acktrail.change.request.reset_request import ResetRequest


class ResetKind(StrEnum):
    """Why the plan of a reset was made."""

    RESET = "reset"
    UNDO = "undo"
    MIGRATION = "migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan(ChangePlan):
    """The plan for a request."""

    request: ResetRequest

    def executable(self, *, partial: bool) -> tuple[PartitionPlan, ...]:
        """What may be sent: everything, or (`partial`) what no refusal is about."""
        if self.refusals and not partial:
            return ()
        refused = RefusedParts(self.refusals)
        return tuple(row for row in self.partitions if row.key not in refused and row.target_offset is not None)


def build_plan(
    request: ResetRequest,
    snapshot: Snapshot,
    *,
    plan_id: str,
    created_by: str,
    undoes: str | None = None,
) -> ResetPlan:
    """The plan for what was found, without its hash. Pure: the same arguments give the same plan. Refusals are part of
    it: a plan that may not be carried out still says what it would do where that is known."""
    rows = planned_rows(request, snapshot)
    plan = ResetPlan(
        plan_id=plan_id,
        kind=ResetKind.UNDO if undoes else ResetKind.MIGRATION if request.migration else ResetKind.RESET,
        created_at_ms=snapshot.taken_at_ms,
        created_by=created_by,
        requested_by=request.requested_by,
        reason=request.reason,
        strategy=request.strategy.text,
        undoes=undoes,
        cluster=snapshot.cluster,
        request=request,
        groups=snapshot.groups,
        partitions=tuple(_partition_plan(row) for row in rows),
        notices=by_severity([*notices_on(request, snapshot, rows), *notices_of_branches(request, snapshot, rows)]),
    )
    return with_totals(plan)


def planned_rows(request: ResetRequest, snapshot: Snapshot) -> list[PlannedRow]:
    """The share partitions of `snapshot` with their targets. Pure."""

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
        carried=_carried(row),
    )


def _carried(row: PlannedRow) -> CarriedState | None:
    """What the source has of a row; where the log here begins after the translated offset, some of it is not here."""
    carried = row.facts.given.carried
    if carried is None or row.resolution.clamp is not Clamp.BELOW_LOG_START:
        return carried
    text = f"the log here begins at {row.resolution.target} only: some of those records are not in it"
    return replace(carried, passed=None, reason=carried.reason or text)


def with_notices(plan: ResetPlan, notices: Sequence[Notice]) -> ResetPlan:
    """`plan`, without a new hash, with more notices."""
    return with_totals(replace(plan, notices=by_severity([*plan.notices, *notices]))) if notices else plan


def with_totals(plan: ResetPlan) -> ResetPlan:
    """`plan`, without a new hash, with the sums over its share partitions."""
    refused = RefusedParts(plan.refusals)
    rows = [row for row in plan.partitions if row.key not in refused]
    impacts = [row.impact for row in rows if row.impact is not None]
    are_offsets = any(impact.unit is CountUnit.OFFSETS for impact in impacts)
    totals = Totals(
        groups=len({row.group_id for row in plan.partitions}),
        partitions=len(plan.partitions),
        refused_partitions=len(plan.partitions) - len(rows),
        unit=CountUnit.OFFSETS if are_offsets else CountUnit.RECORDS,
        **{name: sum_known(getattr(impact, name) for impact in impacts) if impacts else None for name in SUMMED},
    )
    return replace(plan, totals=totals)
