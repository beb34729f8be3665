"""Plans and results of expansions in words and rows, for the command line and for DAGs alike. Names in them are as the
cluster has them: who prints them makes them harmless."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from acktrail.times import instant_text
from acktrail_expansion.change.apply_expansion import ExpansionResult
from acktrail_expansion.change.expansion_plan import ExpansionPlan

GROUP_COLUMNS: Final = ("GROUP", "TYPE", "ORDERED", "OPEN", "NOT KNOWN", "OPEN IN PARTITIONS")
_SHOWN: Final = 20


def key_line(plan: ExpansionPlan) -> str:
    """What the expansion does to keys."""
    counts = f"{plan.old_count} to {plan.new_count} partitions; key mapping {plan.key_mapping}"
    if plan.moving is None:
        return f"{counts}: it is not known which keys move"
    where = "and between those that are there already" if plan.moves_between_existing else "alone"
    which = "every old one" if plan.step == 1 else f"old ones that are equal to it modulo {plan.step}"
    share = f"{plan.moving} of all keys move ({float(Fraction(plan.moving)):.1%})"
    return f"{counts}: {share}, to new partitions {where}; a partition gets keys of {which}"


def group_rows(plan: ExpansionPlan) -> list[tuple[object, ...]]:
    """A row for each group that reads the topic (``GROUP_COLUMNS``)."""
    rows: list[tuple[object, ...]] = []
    for group in plan.groups:
        some = [f"{each.partition}: {each.open_records}" for each in group.partitions[:_SHOWN]]
        more = len(group.partitions) + group.left_off - len(some)
        where = ", ".join(some) + (f" and {more} more" if more else "")
        ordered = "yes" if group.is_ordered else "no"
        rows.append((group.group_id, group.group_type, ordered, group.open_records, group.unknown, where or "-"))
    return rows


def result_line(result: ExpansionResult) -> str:
    """How the expansion stands."""
    counts = f"{result.old_count} to {result.new_count} partitions"
    lines = [f"it has been expanded: {counts}" if result.was_there else f"was expanded from {counts}"]
    if not result.has_old:
        lines.append("no look of the tables has the old count, so no fence is known")
    at = instant_text(result.settles_at_ms)
    if result.is_settled:
        lines.append(f"producers know the count since {at}")
    else:
        lines.append(f"producers may use the old count until {at}; the first look after that gives the high fences")
    return "; ".join(lines)
