"""Numbers of a plan in words: what is known, what is at least so, what nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acktrail.times import instant_text

__all__ = ["delivered", "forgotten"]


def forgotten(plan: Mapping[str, Any]) -> tuple[str, str]:
    """How many acknowledgements, and how many archived records, a plan forgets; `plan` is plain data."""
    totals, impacts = plan["totals"], [row["impact"] for row in plan["partitions"] if row["impact"]]
    known = [since for impact in impacts if (since := impact.get("known_since_ms")) is not None]
    since = f", known from {instant_text(min(known))} on" if known else ""
    is_old = plan.get("version") == 1 and any(impact.get("passed_again") for impact in impacts)

    def number(name: str) -> str:
        exact, least = totals.get(f"{name}_forgotten"), totals.get(f"{name}_known")
        if exact is None:
            return f"at least {least}{since}" if least else "unknown"
        return f"at least {exact}, not counted below the start offsets" if is_old else str(exact)

    return number("acknowledgements"), number("archived")


def delivered(plan: Mapping[str, Any]) -> tuple[str, str]:
    """How many records a plan delivers, and how many of them again, beside the offsets that it counts; `plan` is plain
    data."""
    totals = plan["totals"]
    return _offsets(totals, "to_deliver"), _offsets(totals, "delivered_again")


def _offsets(totals: Mapping[str, Any], name: str) -> str:
    offsets, counts = totals.get(name), totals.get("records")
    if not offsets:
        return "unknown" if offsets is None else "0"
    records = counts.get(name) if counts is not None else None
    if records is None or counts is None:
        return f"{offsets} offsets (control records and removed ones count, but are not delivered)"
    aborted = counts[f"{name}_aborted"]
    if records == offsets:
        return str(records)
    more = f", {aborted} of aborted transactions (only read_uncommitted groups get them)" if aborted else ""
    return f"{records}{more}, in {offsets} offsets"
