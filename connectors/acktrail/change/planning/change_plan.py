"""What the plan of every kind of change has: a value that a person reads, with a hash over all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acktrail import __version__
from acktrail.change.collection.facts import ClusterFacts, GroupFacts, PartitionOffsets
from acktrail.change.planning.impact import Clamp, CountUnit, Impact
from acktrail.change.planning.notices import Notice, refusals_among
from acktrail.times import instant_text

PLAN_FORMAT: Final = "acktrail-plan"
PLAN_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionOffsets):
    """One share partition: what is there now, where it is to start, and what that does.

    `wanted_offset` is what the strategy says, `target_offset` after clamping (`clamp` says why); None: it is refused,
    and a notice says why. Numbers of records as in `Impact`.
    """

    wanted_offset: int | None
    target_offset: int | None
    clamp: Clamp | None
    impact: Impact | None


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


SUMMED: Final = (
    *("to_deliver", "hidden_ahead", "delivered_again", "skipped", "in_flight_discarded"),
    *("acknowledgements_forgotten", "archived_forgotten"),
    *("acknowledgements_known", "archived_known", "passed_unknown"),
)
NO_TOTALS: Final = Totals(groups=0, partitions=0, refused_partitions=0, unit=CountUnit.RECORDS, **dict.fromkeys(SUMMED))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """The plan of a change of `kind`, for what the cluster was when it was made. `strategy` is what it does in a few
    words. `groups` are those that it changes, `partitions` the share partitions whose start offsets it changes, each
    none where it changes something else; `undoes` is the plan that it takes back. `plan_hash` covers every other field.
    """

    kind: str
    plan_id: str
    created_at_ms: int
    created_by: str
    requested_by: str = ""
    reason: str = ""
    cluster: ClusterFacts
    strategy: str
    undoes: str | None = None
    groups: tuple[GroupFacts, ...] = ()
    partitions: tuple[PartitionPlan, ...] = ()
    totals: Totals = NO_TOTALS
    notices: tuple[Notice, ...] = ()
    format: str = PLAN_FORMAT
    version: int = PLAN_VERSION
    acktrail_version: str = __version__
    plan_hash: str = ""

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    @property
    def release(self) -> str:
        return self.cluster.release

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self.groups)

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)


def forgotten(plan: ChangePlan) -> tuple[str, str]:
    """How many acknowledgements, and how many archived records, a plan forgets."""
    totals, impacts = plan.totals, [row.impact for row in plan.partitions if row.impact is not None]
    known = [impact.known_since_ms for impact in impacts if impact.known_since_ms is not None]
    since = f", known from {instant_text(min(known))} on" if known else ""

    def number(exact: int | None, least: int | None) -> str:
        return (f"at least {least}{since}" if least else "unknown") if exact is None else str(exact)

    return (
        number(totals.acknowledgements_forgotten, totals.acknowledgements_known),
        number(totals.archived_forgotten, totals.archived_known),
    )


def delivered(plan: ChangePlan) -> tuple[str, str]:
    """How many records a plan delivers, and how many of them again; offsets where it counts those."""

    def number(count: int | None) -> str:
        if count and plan.totals.unit is CountUnit.OFFSETS:
            return f"{count} offsets (control records and removed ones count, but are not delivered)"
        return "unknown" if count is None else str(count)

    return number(plan.totals.to_deliver), number(plan.totals.delivered_again)


def cost(plan: ChangePlan) -> str:
    """What a plan does to records, in a few words; ``unknown`` for a number that is not known."""
    skipped = "unknown" if plan.totals.skipped is None else plan.totals.skipped
    (_, again), (_, archived) = delivered(plan), forgotten(plan)
    return f"loses {skipped}, repeats {again.partition(' (')[0]}, revives {archived.partition(',')[0]} poison"
