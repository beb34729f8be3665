"""Numbers of a plan in words: what is known, what is at least so, what nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acktrail.reset.moments import instant_text

__all__ = ["forgotten"]


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
