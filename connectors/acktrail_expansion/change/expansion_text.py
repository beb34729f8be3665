"""Plans and results of expansions in words and rows, for the command line and for DAGs alike. Names in them are as the
cluster has them: who prints them makes them harmless."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from acktrail.times import instant_text
from acktrail_expansion.change.apply_expansion import Settling
from acktrail_expansion.change.expansion_plan import ExpansionPlan

GROUP_COLUMNS: Final = ("GROUP", "TYPE", "ORDERED", "OPEN", "NOT KNOWN", "OPEN IN PARTITIONS")


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
        rest = group.open_records - sum(count for _, count in group.most_open)
        where = [f"{partition}: {count}" for partition, count in group.most_open] + [f"others: {rest}"] * bool(rest)
        ordered = "yes" if group.is_ordered else "no"
        known = (group.group_id, group.group_type, ordered, group.open_records, group.unknown)
        rows.append((*known, ", ".join(where) or "-"))
    return rows


def result_line(plan: ExpansionPlan, settling: Settling) -> str:
    """How the expansion stands, and what that assumes of producers; librdkafka has other names for the same."""
    counts, at = f"expanded from {plan.old_count} to {plan.new_count} partitions", instant_text(settling.settles_at_ms)
    if settling.is_settled:
        return f"{counts}; producers know the count since {at}"
    return (
        f"{counts}; producers may use the old count until {at}, provided that metadata.max.age.ms, max.block.ms, "
        "delivery.timeout.ms and twice the request.timeout.ms of each are less than "
        f"{plan.settle_ms / 1000:g} s together (ACKTRAIL_SETTLE)"
    )
