"""The plan of a reset: a value that says for every share partition what would happen, with a hash over all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from acktrail.change.collection.facts import (
    CarriedState,
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    PartitionOffsets,
    Snapshot,
)
from acktrail.change.planning.impact import CountUnit, Impact, impact_of
from acktrail.change.planning.notices import Notice, RefusedParts, by_severity, refusals_among
from acktrail.change.planning.plan_checks import notices_of_branches
from acktrail.change.planning.reset_rules import PlannedRow, notices_on
from acktrail.change.planning.strategies import Clamp, resolve
from acktrail.change.request.reset_request import ResetRequest

PLAN_FORMAT = "acktrail-plan"
"""Of plans of every kind."""
PLAN_VERSION = 1


class ResetKind(StrEnum):
    """Why the plan of a reset was made."""

    RESET = "reset"
    UNDO = "undo"
    MIGRATION = "migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionOffsets):
    """One share partition: what is there now, where it is to start, and what that does.

    `wanted_offset` is what the strategy says, `target_offset` after clamping (`clamp` says why); None: it is refused,
    and a notice says why. Numbers of records as in `Impact`. `first_record_ms` and `last_record_ms` span what is
    delivered again, as the record batches have it; None: nothing is, or it was not looked up (`times_reason`).
    `carried` is what a migration found on the source; `impact` is about this cluster alone.
    """

    wanted_offset: int | None
    target_offset: int | None
    clamp: Clamp | None
    impact: Impact | None
    first_record_ms: int | None = None
    last_record_ms: int | None = None
    times_reason: str | None = None
    carried: CarriedState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedTotals:
    """Sums of `CarriedState` over the share partitions of a migration that are not refused; None: of at least one it is
    not known. `unknown` counts those without a known `delivered_again`."""

    partitions: int
    unknown: int
    delivered_again: int | None
    delivered_again_most: int | None
    acknowledgements_lost: int | None
    archived_again: int | None
    in_flight: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the share partitions that are not refused. None: at least one of them is not known, or all are refused.
    `acknowledgements_known` and `archived_known` are lower bounds. For `passed_unknown` records below start offsets the
    history is incomplete. `unit`: offsets where at least one share partition counts them."""

    groups: int
    partitions: int
    refused_partitions: int
    unit: CountUnit
    to_deliver: int | None
    hidden_ahead: int | None
    delivered_again: int | None
    skipped: int | None
    acknowledgements_forgotten: int | None
    archived_forgotten: int | None
    in_flight_discarded: int | None
    acknowledgements_known: int | None
    archived_known: int | None
    passed_unknown: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """`plan_hash` covers every other field. `undoes` is the plan that this one takes back."""

    format: str
    version: int
    plan_id: str
    kind: ResetKind
    created_at_ms: int
    created_by: str
    acktrail_version: str
    undoes: str | None
    cluster: ClusterFacts
    request: ResetRequest
    groups: tuple[GroupFacts, ...]
    partitions: tuple[PartitionPlan, ...]
    notices: tuple[Notice, ...]
    totals: Totals
    plan_hash: str
    carried: CarriedTotals | None = None

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    @property
    def release(self) -> str:
        return self.cluster.release

    @property
    def reason(self) -> str:
        return self.request.reason

    @property
    def requested_by(self) -> str:
        return self.request.requested_by

    @property
    def strategy(self) -> str:
        return self.request.strategy.text

    @property
    def operation(self) -> str:
        return "READ"

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self.groups)

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
    acktrail_version: str,
    undoes: str | None = None,
) -> ResetPlan:
    """The plan for what was found, without its hash. Pure: the same arguments give the same plan. Refusals are part of
    it: a plan that may not be carried out still says what it would do where that is known."""
    rows = planned_rows(request, snapshot)
    plan = ResetPlan(
        format=PLAN_FORMAT,
        version=PLAN_VERSION,
        plan_id=plan_id,
        kind=ResetKind.UNDO if undoes else ResetKind.MIGRATION if request.migration else ResetKind.RESET,
        created_at_ms=snapshot.taken_at_ms,
        created_by=created_by,
        acktrail_version=acktrail_version,
        undoes=undoes,
        cluster=snapshot.cluster,
        request=request,
        groups=snapshot.groups,
        partitions=tuple(_partition_plan(row) for row in rows),
        notices=by_severity([*notices_on(request, snapshot, rows), *notices_of_branches(request, snapshot, rows)]),
        totals=NO_TOTALS,
        plan_hash="",
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


_SUMMED = (
    *("to_deliver", "hidden_ahead", "delivered_again", "skipped", "in_flight_discarded"),
    *("acknowledgements_forgotten", "archived_forgotten"),
    *("acknowledgements_known", "archived_known", "passed_unknown"),
)
NO_TOTALS = Totals(groups=0, partitions=0, refused_partitions=0, unit=CountUnit.RECORDS, **dict.fromkeys(_SUMMED))


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
        **{name: _sum(getattr(impact, name) for impact in impacts) if impacts else None for name in _SUMMED},
    )
    return replace(
        plan, totals=totals, carried=_carried_totals([row.carried for row in rows if row.carried is not None])
    )


def _carried_totals(carried: Sequence[CarriedState]) -> CarriedTotals | None:
    if not carried:
        return None
    return CarriedTotals(
        partitions=len(carried),
        unknown=sum(one.delivered_again is None for one in carried),
        delivered_again=_sum(one.delivered_again for one in carried),
        delivered_again_most=_sum(one.delivered_again_most for one in carried),
        acknowledgements_lost=_sum(one.acknowledged for one in carried),
        archived_again=_sum(one.archived for one in carried),
        in_flight=_sum(one.in_flight for one in carried),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = tuple(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None
