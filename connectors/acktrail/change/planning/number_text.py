"""Numbers of a plan in words: exact, a minimum, or unknown."""

from __future__ import annotations

from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.impact import CountUnit
from acktrail.times import instant_text


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
