"""The expansions of a run as a report shows them: of the worst the first rows each, all others counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from acktrail_dashboard.summary_types import ExpansionRow, FenceRow, GroupOrderRow, GroupStartRow, RunExpansions

EXPANSIONS_DETAILED: Final = 20
ROWS_OF_EACH: Final = 12
RowT = TypeVar("RowT", FenceRow, GroupOrderRow, GroupStartRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPart:
    """The first rows about one expansion, and how many more there are."""

    expansion: ExpansionRow
    shown: tuple[FenceRow | GroupOrderRow | GroupStartRow, ...]
    left_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionParts:
    """What a report has of expansions. `doubts`: what is not certain, with the expansions that leave it open;
    `left_off`: expansions without a part."""

    orders: tuple[ExpansionPart, ...]
    starts: tuple[ExpansionPart, ...]
    fences: tuple[ExpansionPart, ...]
    doubts: tuple[tuple[str, tuple[ExpansionRow, ...]], ...]
    left_off: int


def expansion_parts(found: RunExpansions) -> ExpansionParts:
    """The parts of the worst expansions; those without a row are left out."""
    detailed = found.expansions[:EXPANSIONS_DETAILED]
    doubts: dict[str, list[ExpansionRow]] = defaultdict(list)
    for each in found.expansions:
        for text in each.uncertain:
            doubts[text].append(each)
    return ExpansionParts(
        orders=_parts(detailed, found.orders),
        starts=_parts(detailed, found.starts),
        fences=_parts(detailed, found.fences),
        doubts=tuple((text, tuple(own)) for text, own in doubts.items()),
        left_off=len(found.expansions) - len(detailed),
    )


def _parts(detailed: Iterable[ExpansionRow], rows: Iterable[RowT]) -> tuple[ExpansionPart, ...]:
    by_event: dict[str, list[RowT]] = defaultdict(list)
    for row in rows:
        by_event[row.event_id].append(row)
    return tuple(
        ExpansionPart(expansion=each, shown=tuple(own[:ROWS_OF_EACH]), left_off=max(0, len(own) - ROWS_OF_EACH))
        for each in detailed
        if (own := by_event[each.event_id])
    )
