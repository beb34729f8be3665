"""Numbers of a plan in words: exact, a minimum, or unknown."""

from __future__ import annotations

from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.times import instant_text


def forgotten(plan: ResetPlan) -> tuple[str, str]:
    """How many acknowledgements, and how many archived records, a plan forgets."""
    totals, impacts = plan.totals, [row.impact for row in plan.partitions if row.impact is not None]
    known = [impact.known_since_ms for impact in impacts if impact.known_since_ms is not None]
    since = f", known from {instant_text(min(known))} on" if known else ""

    def number(exact: int | None, least: int | None) -> str:
        if exact is None:
            return f"at least {least}{since}" if least else "unknown"
        return str(exact)

    return (
        number(totals.acknowledgements_forgotten, totals.acknowledgements_known),
        number(totals.archived_forgotten, totals.archived_known),
    )


def delivered(plan: ResetPlan) -> tuple[str, str]:
    """How many records a plan delivers, and how many of them again, beside the offsets that it counts."""

    def number(name: str) -> str:
        offsets, records = getattr(plan.totals, name), getattr(plan.totals.records, name, None)
        aborted = getattr(plan.totals.records, f"{name}_aborted", 0)
        if not offsets:
            return "unknown" if offsets is None else "0"
        if records is None:
            return f"{offsets} offsets (control records and removed ones count, but are not delivered)"
        if records == offsets:
            return str(records)
        more = f", {aborted} of aborted transactions (only read_uncommitted groups get them)" if aborted else ""
        return f"{records}{more}, in {offsets} offsets"

    return number("to_deliver"), number("delivered_again")
