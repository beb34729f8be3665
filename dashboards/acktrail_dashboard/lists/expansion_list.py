"""Expansions of topics, filtered, one page at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from acktrail.columnar.expansion_lines import ExpansionLine
from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS
from acktrail_dashboard.wording import tally

EXPANSIONS_A_PAGE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionFilter:
    """What is asked for; an empty text asks for everything. `worst`: the worst verdict of an expansion; `topic`: a part
    of the topic's name."""

    topic: str = ""
    status: str = ""
    worst: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPage:
    """Part `at` (from 1) of `count` of the `total` expansions that the filter lets through. `worst_verdicts` counts
    those that it would let through with any verdict."""

    lines: tuple[ExpansionLine, ...]
    at: int
    count: int
    total: int
    worst_verdicts: tuple[tuple[str, int], ...]


def expansion_page(lines: Iterable[ExpansionLine], wanted: ExpansionFilter, *, at: int = 1) -> ExpansionPage:
    """Part `at` of `lines`, or the nearest that there is."""
    chosen = [line for line in lines if _is_named(line, wanted.topic) and wanted.status in {"", line.row["status"]}]
    found = [line for line in chosen if wanted.worst in {"", line.worst}]
    count = max(1, -(-len(found) // EXPANSIONS_A_PAGE))
    at = min(max(1, at), count)
    return ExpansionPage(
        lines=tuple(found[(at - 1) * EXPANSIONS_A_PAGE : at * EXPANSIONS_A_PAGE]),
        at=at,
        count=count,
        total=len(found),
        worst_verdicts=tally((line.worst for line in chosen if line.worst), ORDERING_VERDICTS),
    )


def _is_named(line: ExpansionLine, part: str) -> bool:
    return part.casefold() in (line.row["topic"] or line.row["topic_id"] or "").casefold()
