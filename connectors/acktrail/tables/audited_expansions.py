"""What the newest audit of partition expansions found, out of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.columnar.expansion_lines import (
    FENCE_WIDTHS,
    LIST_COLUMNS,
    START_COUNTS,
    VERDICT_COLUMNS,
    ExpansionLine,
    expansion_lines,
)
from acktrail.model.expansion.expansion_texts import dependency_texts, ordering_rank, uncertainties
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.open_records_reader import OpenWhenBegun, open_when_begun

MOST_OPENED: Final = 40
"""Audited destinations whose open records are looked up."""
_STARTS: Final = ("event_id", "group_id", "group_type", "partition", "first_start_offset", "skipped_records", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionDetails:
    """One expansion. `audits`: audited destinations (rows of ``ordering_audits``), the worst first, then those with the
    most left; `opened`: what the history has of the first of them, for share groups; `fences`: by partition; `starts`:
    those with the most skipped records first; `dependencies` and `uncertain` are sentences."""

    line: ExpansionLine
    audits: tuple[Mapping[str, Any], ...]
    opened: tuple[OpenWhenBegun, ...]
    fences: tuple[Mapping[str, Any], ...]
    starts: tuple[Mapping[str, Any], ...]
    dependencies: tuple[str, ...]
    uncertain: tuple[str, ...]


def read_expansions(tables: Tables, where: pc.Expression | None = None) -> tuple[ExpansionLine, ...]:
    """Every expansion, the worst first. `where`: on `event_id`. Raises ConfigurationError, RetryableError: a table
    cannot be read."""
    return expansion_lines(
        tables.read("partition_expansions", columns=LIST_COLUMNS, where=where),
        tables.read("expansion_fences", columns=FENCE_WIDTHS, where=where),
        tables.read("ordering_audits", columns=VERDICT_COLUMNS, where=where),
        tables.read("start_audits", columns=START_COUNTS, where=where),
    )


def read_details(tables: Tables, line: ExpansionLine) -> ExpansionDetails:
    """All rows about one expansion. Raises as `read_expansions`."""
    own = pc.field("event_id") == line.row["event_id"]
    audits = _sorted(tables.read("ordering_audits", where=own).to_pylist(), _audit_order)
    fences = _sorted(tables.read("expansion_fences", where=own).to_pylist(), lambda row: (row["partition"] or 0,))
    begins = first_offsets(line.row, fences)
    return ExpansionDetails(
        line=line,
        audits=audits,
        opened=tuple(open_when_begun(tables, audits[:MOST_OPENED], begins)),
        fences=fences,
        starts=_sorted(tables.read("start_audits", columns=_STARTS, where=own).to_pylist(), _start_order),
        dependencies=tuple(dependency_texts(tables.read("partition_dependencies", where=own).to_pylist())),
        uncertain=tuple(uncertainties(line.row, dict(line.verdicts), line.unknown_fences)),
    )


def first_offsets(row: Mapping[str, Any], fences: Iterable[Mapping[str, Any]]) -> dict[int, int | None]:
    """The first offset of each partition that is certainly from after an expansion (row of ``partition_expansions``),
    by its rows of ``expansion_fences``; None: not known."""
    added: dict[int, int | None] = dict.fromkeys(range(row["old_count"], row["new_count"]), 0)
    return added | {fence["partition"]: fence["fence_high"] for fence in fences}


def _sorted(rows: Sequence[Mapping[str, Any]], order: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(sorted(rows, key=order))


def _audit_order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return ordering_rank(row["verdict"]), -(row["remaining"] or 0), row["group_id"] or "", row["partition"] or 0


def _start_order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return -(row["skipped_records"] or 0), row["group_id"] or "", row["partition"] or 0
