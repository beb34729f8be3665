"""Parts of one expansion's page: fences, audited destinations and starts of groups, each the worst first. Only the rows
of a page become Python values: an expansion can have ten thousands of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS, ordering_rank
from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail_dashboard.expansion_wording import START_VERDICTS
from acktrail_dashboard.wording import tally

ROWS_A_PAGE: Final = 50
AUDIT_COLUMNS: Final = (
    "event_id", "source_event_id", "topic_id", "topic", "group_id", "group_type", "partition", "source_partition",
    "verdict", "sources", "sources_safe", "sources_violated", "source_before", "source_at", "destination_before",
    "destination_at", "before_at", "at", "fence_low", "fence_high", "remaining", "reason",
)  # fmt: skip
"""The columns of ``ORDERING_AUDITS`` that pages show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPage:
    """Part `at` (from 1) of `count` of `total` rows."""

    rows: tuple[dict[str, Any], ...]
    at: int
    count: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Audited destinations, the worst first. `verdicts` counts those that the filter by group lets through, `groups`
    all groups by their worst verdict."""

    page: RowsPage
    verdicts: tuple[tuple[str, int], ...]
    groups: tuple[tuple[str, str], ...]


def audit_page(audits: pa.Table, *, group_id: str = "", verdict: str = "", at: int = 1) -> AuditPage:
    """Part `at` of one expansion's rows of ``ordering_audits``, or the nearest that there is."""
    ranked = _ranked(audits, "verdict", ORDERING_VERDICTS, ordering_rank(OrderingVerdict.INDETERMINATE.value))
    worst = ranked.group_by("group_id").aggregate([("rank", "min")]).sort_by([("rank_min", "ascending")]).to_pylist()
    own = ranked.filter(pc.equal(ranked["group_id"], group_id)) if group_id else ranked
    found = own.filter(pc.equal(own["verdict"], verdict)) if verdict else own
    order = [("rank", "ascending"), ("remaining", "descending"), ("group_id", "ascending"), ("partition", "ascending")]
    return AuditPage(
        page=_page(found, order, at),
        verdicts=tally((each or "none given" for each in own["verdict"].to_pylist()), ORDERING_VERDICTS),
        groups=tuple((row["group_id"] or "", ORDERING_VERDICTS[row["rank_min"]]) for row in worst),
    )


def fence_page(fences: pa.Table, at: int = 1) -> RowsPage:
    """Part `at` of one expansion's rows of ``expansion_fences``, with `width` (records; None: not known): those that
    are not known first, then the widest."""
    width = pc.subtract(fences["fence_high"], fences["fence_low"])
    least = pc.fill_null(pc.cast(pc.is_valid(width), pa.int8()), 0)
    rows = fences.append_column("width", width).append_column("rank", least)
    return _page(rows, [("rank", "ascending"), ("width", "descending"), ("partition", "ascending")], at)


def start_page(starts: pa.Table, at: int = 1) -> RowsPage:
    """Part `at` of one expansion's rows of ``start_audits``: those with skipped records first, the most of them."""
    rows = _ranked(starts, "verdict", START_VERDICTS, START_VERDICTS.index("unknown"))
    order = [("rank", "ascending"), ("skipped_records", "descending"), ("group_id", "ascending")]
    return _page(rows, [*order, ("partition", "ascending")], at)


def _ranked(rows: pa.Table, column: str, values: tuple[str, ...], otherwise: int) -> pa.Table:
    ranks = pc.index_in(rows[column], value_set=pa.array(values, pa.string()))
    return rows.append_column("rank", pc.fill_null(ranks, fill_value=otherwise))


def _page(rows: pa.Table, order: list[tuple[str, str]], at: int) -> RowsPage:
    count = max(1, -(-rows.num_rows // ROWS_A_PAGE))
    at = min(max(1, at), count)
    chosen = rows.sort_by(order).slice((at - 1) * ROWS_A_PAGE, ROWS_A_PAGE) if rows.num_rows else rows
    shown = chosen.drop_columns(["rank"]).to_pylist()
    return RowsPage(rows=tuple(shown), at=at, count=count, total=rows.num_rows)
