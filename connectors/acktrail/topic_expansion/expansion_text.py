"""Plans and results of expansions in words and rows, for the command line and for DAGs alike. Names in them are as the
cluster has them: who prints them makes them harmless."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail.model.expansion.expansion_texts import counted
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.times import instant_text
from acktrail.topic_expansion.apply_expansion import ExpansionResult
from acktrail.topic_expansion.expansion_plan import ExpansionPlan
from acktrail.topic_expansion.ledger_reading import RecordsLeft

GROUP_COLUMNS: Final = ("GROUP", "TYPE", "ORDERED", "OPEN", "NOT KNOWN", "RECORDS/S", "OPEN IN PARTITIONS")
MOVE_COLUMNS: Final = ("PARTITION", "DEPENDS ON", "WHY")
FENCE_COLUMNS: Final = ("PARTITION", "LOW", "HIGH", "WIDTH")
LEFT_COLUMNS: Final = ("GROUP", "TYPE", "RECORDS BELOW THE FENCES", "PARTITIONS NOT KNOWN")
VERDICT_COLUMNS: Final = ("GROUP", "VERDICT", "PARTITIONS")
_SHOWN: Final = 20


def key_lines(plan: ExpansionPlan) -> list[str]:
    """What the expansion does to keys, a sentence each."""
    keys, counts = plan.keys, f"{plan.old_count} to {plan.new_count} partitions"
    if keys.moving is None or keys.keys is None:
        return [f"{counts}; key mapping {keys.mapping}: it is not known which keys move"]
    share = f"{keys.moving} of {keys.keys} keys move ({keys.moving / keys.keys:.1%})"
    where = "to new partitions alone"
    if keys.moves_between_existing:
        where = "to new partitions, and between those that are there already"
    return [f"{counts}; key mapping {keys.mapping}: {share}, {where}"]


def time_lines(plan: ExpansionPlan) -> list[str]:
    """When it would be safe, by what is known now."""
    settle = f"producers may use the old count for {plan.settle_ms / 1000:g} s"
    if plan.safe_after_s is None:
        return [f"{settle}; when every group has finished what is open is not known: no pace of all of them"]
    return [f"{settle}; at their pace every group has finished what is open now after {plan.safe_after_s} s at best"]


def group_rows(plan: ExpansionPlan) -> list[tuple[object, ...]]:
    """A row for each group that reads the topic (``GROUP_COLUMNS``)."""
    rows: list[tuple[object, ...]] = []
    for group in plan.groups:
        some = [f"{each.partition}: {each.open_records}" for each in group.partitions[:_SHOWN]]
        more = len(group.partitions) + group.left_off - len(some)
        where = ", ".join(some) + (f" and {more} more" if more else "")
        ordered = "yes" if group.is_ordered else "no"
        counts = (group.open_records, group.unknown, group.records_per_s)
        rows.append((group.group_id, group.group_type, ordered, *counts, where or "-"))
    return rows


def move_rows(plan: ExpansionPlan) -> list[tuple[object, ...]]:
    """Which partitions' records are to be finished first, for the first destinations (``MOVE_COLUMNS``)."""
    old, new, step = plan.old_count, plan.new_count, plan.keys.step
    first = old if plan.keys.mapping is KeyMapping.NONE or not plan.keys.moves_between_existing else 0
    rows: list[tuple[object, ...]] = []
    for destination in range(first, min(new, first + _SHOWN)):
        sources = [each for each in range(destination % step, old, step) if each != destination]
        why = "new partition" if destination >= old else "keys move between existing partitions"
        rows.append((destination, _listed(sources), why))
    if new - first > _SHOWN:
        rows.append((f"and {new - first - _SHOWN} more", f"equal modulo {step}", ""))
    return rows


def result_lines(result: ExpansionResult) -> list[str]:
    """How the expansion stands, a sentence each."""
    counts = f"{result.old_count} to {result.new_count} partitions"
    lines = [f"was expanded from {counts}" if not result.was_there else f"it has been expanded: {counts}"]
    if result.event_id is None:
        return [*lines, "no look shows the expansion: no look of the tables has the old count, so no fence is known"]
    if result.settles_at_ms is None:
        return [*lines, "not every broker lists the partitions yet: how long producers may use the old count is open"]
    at = instant_text(result.settles_at_ms)
    if not result.is_settled:
        return [*lines, f"producers may use the old count until {at}; the first look after that gives the high fences"]
    widths = [fence.width for fence in result.fences if fence.width is not None]
    unknown = len(result.fences) - len(widths)
    spread = f"{min(widths)} to {max(widths)} offsets wide" if widths else "none is known"
    return [
        *lines,
        f"every producer knows the count since {at}; fences of {counted(len(widths), 'partition')}, {spread}"
        + (f", {unknown} not known" if unknown else ""),
    ]


def fence_rows(result: ExpansionResult) -> list[tuple[object, ...]]:
    """The fences (``FENCE_COLUMNS``), the widest first, at most 50."""
    ranked = sorted(result.fences, key=lambda each: (each.width is not None, -(each.width or 0), each.partition))
    return [(each.partition, each.low, each.high, each.width) for each in ranked[:50]]


def left_rows(left: Iterable[RecordsLeft]) -> list[tuple[object, ...]]:
    """What groups have not finished (``LEFT_COLUMNS``)."""
    return [(each.group_id, each.group_type, each.records, each.unknown) for each in left]


def verdict_lines(found: Iterable[tuple[str, str, int]]) -> list[str]:
    """What the audit proves of each group, a line each, the first twenty."""
    by_group: dict[str, list[str]] = {}
    for group_id, verdict, count in found:
        by_group.setdefault(group_id, []).append(f"{count} {verdict}")
    lines = [f"order of keys in group {group_id}: {', '.join(each)}" for group_id, each in by_group.items()]
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"and {counted(more, 'more group')}"] if more > 0 else [])]


def _listed(numbers: Iterable[int]) -> str:
    found = list(numbers)
    more = len(found) - _SHOWN
    return ", ".join(map(str, found[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
