"""Expansions of topics, their fences, and what the newest audit proves of each group, a row each, the worst first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.expansion_lines import ExpansionLine, expansion_lines
from acktrail.model.expansion.expansion_texts import doubts, ordering_rank
from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail_dashboard.expansion_wording import fence_method, start_rank
from acktrail_dashboard.rows.run_tables import RunTables, TableRow, row_value, rows
from acktrail_dashboard.summary_types import ExpansionRow, FenceRow, GroupOrderRow, GroupStartRow, RunExpansions

COUNTED: Final = ("event_id", "group_id", "group_type", "verdict")
"""Columns of ``ordering_audits`` that are counted."""
PROOFS: Final = (
    "event_id", "group_id", "verdict", "partition", "source_partition", "source_before", "before_at", "source_at", "at",
    "fence_low", "fence_high", "remaining",
)  # fmt: skip
"""Columns of ``ordering_audits`` that prove a verdict."""
SHOWN: Final = tuple(
    verdict.value
    for verdict in (
        OrderingVerdict.VIOLATION,
        OrderingVerdict.POSSIBLE_VIOLATION,
        OrderingVerdict.INDETERMINATE,
        OrderingVerdict.UNKNOWN_FENCE,
    )
)
"""Verdicts whose readings a report shows."""
STARTS: Final = ("event_id", "group_id", "group_type", "verdict", "skipped_records")
"""Columns of ``start_audits`` that are summed up."""
FENCES: Final = (
    "event_id", "partition", "fence_low", "fence_high", "fence_exact", "log_start_offset", "confidence", "reason",
)  # fmt: skip
"""Columns of ``expansion_fences`` that a row has."""
_A_GROUP: Final = ("event_id", "group_id")
_GroupKey = tuple[str, str]


def run_expansions(own: RunTables) -> RunExpansions:
    """What the tables of one run have about expansions: each list in the order of the expansions, then the worst first.
    Cost: each table is read once; audited destinations are counted by columns."""
    if own.expansions_reason:
        return RunExpansions(reason=own.expansions_reason)
    lines = expansion_lines(own.partition_expansions, own.expansion_fences, own.ordering_audits, own.start_audits)
    place = {line.row["event_id"]: number for number, line in enumerate(lines)}
    return RunExpansions(
        expansions=tuple(map(_expansion, lines)),
        fences=tuple(sorted(map(_fence, rows(own.expansion_fences, FENCES)), key=_after(place, _fence_order))),
        orders=tuple(sorted(_orders(own.ordering_audits, own.ordering_proofs), key=_after(place, _order_order))),
        starts=tuple(sorted(_starts(own.start_audits), key=_after(place, _start_order))),
    )


def _expansion(line: ExpansionLine) -> ExpansionRow:
    return row_value(
        ExpansionRow,
        line.row,
        worst=line.worst or None,
        destinations=line.verdicts,
        groups=line.groups,
        widest_fence=line.widest,
        unknown_fences=line.unknown_fences,
        skipped_records=line.skipped,
        unknown_starts=line.unknown_starts,
        uncertain=tuple(doubts(line.row, dict(line.verdicts), line.unknown_fences)),
    )


def _fence(row: TableRow) -> FenceRow:
    low, high = row["fence_low"], row["fence_high"]
    return row_value(
        FenceRow,
        row,
        width=None if low is None or high is None else high - low,
        method=fence_method(row),
        reason=row["reason"] or "",
    )


def _orders(audits: pa.Table, proofs: pa.Table) -> Iterable[GroupOrderRow]:
    counts: dict[_GroupKey, dict[str, int]] = defaultdict(dict)
    types: dict[_GroupKey, str | None] = {}
    for row in audits.group_by(list(COUNTED), use_threads=False).aggregate([([], "count_all")]).to_pylist():
        key, verdict = _key(row), row["verdict"] or "none given"
        counts[key][verdict] = counts[key].get(verdict, 0) + row["count_all"]
        types.setdefault(key, row["group_type"])
    worst = _worst_proofs(proofs)
    for key, own in counts.items():
        destinations = tuple(sorted(own.items(), key=lambda pair: (ordering_rank(pair[0]), pair[0])))
        verdict = destinations[0][0]
        proof = worst.get(key)
        shown = proof if proof is not None and proof["verdict"] == verdict else dict.fromkeys(PROOFS)
        yield row_value(
            GroupOrderRow,
            shown,
            event_id=key[0],
            group_id=key[1],
            group_type=types[key],
            verdict=verdict,
            destinations=destinations,
        )


def _worst_proofs(proofs: pa.Table) -> dict[_GroupKey, TableRow]:
    """Of each group in each expansion the audited destination with the worst verdict, of those the one with the most
    left, then the lowest."""
    ranks = pc.index_in(proofs["verdict"], value_set=pa.array(SHOWN, pa.string()))
    order = [("rank", "ascending"), ("remaining", "descending"), ("partition", "ascending")]
    ordered = proofs.append_column("rank", ranks).filter(pc.is_valid(ranks)).sort_by(order)
    firsts = [(name, "first") for name in PROOFS if name not in _A_GROUP]
    options = pc.ScalarAggregateOptions(skip_nulls=False)
    found = ordered.group_by(list(_A_GROUP), use_threads=False).aggregate([(*each, options) for each in firsts])
    named = found.rename_columns([name.removesuffix("_first") for name in found.column_names])
    return {_key(row): row for row in named.to_pylist()}


def _starts(starts: pa.Table) -> Iterable[GroupStartRow]:
    found: dict[_GroupKey, list[TableRow]] = defaultdict(list)
    by = starts.group_by(["event_id", "group_id", "group_type", "verdict"], use_threads=False)
    for row in by.aggregate([([], "count_all"), ("skipped_records", "sum"), ("skipped_records", "count")]).to_pylist():
        found[_key(row)].append(row)
    for (event_id, group_id), own in found.items():
        partitions, known = (sum(row[name] for row in own) for name in ("count_all", "skipped_records_count"))
        counts = sorted(((row["verdict"] or "unknown", row["count_all"]) for row in own), key=_by_start)
        yield GroupStartRow(
            event_id=event_id,
            group_id=group_id,
            group_type=own[0]["group_type"],
            verdict=counts[0][0],
            partitions=tuple(counts),
            skipped_records=sum(row["skipped_records_sum"] or 0 for row in own) if known else None,
            unknown_partitions=partitions - known,
        )


def _by_start(pair: tuple[str, int]) -> tuple[int, str]:
    return start_rank(pair[0]), pair[0]


def _key(row: TableRow) -> _GroupKey:
    return row["event_id"] or "", row["group_id"] or ""


def _after(place: Mapping[str, int], order: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    """Sort key: the place of the row's expansion, then `order`."""
    return lambda row: (place.get(row.event_id, len(place)), *order(row))


def _fence_order(row: FenceRow) -> tuple[Any, ...]:
    return row.width is not None, -(row.width or 0), row.partition or 0


def _order_order(row: GroupOrderRow) -> tuple[Any, ...]:
    return ordering_rank(row.verdict), -(row.remaining or 0), row.group_id


def _start_order(row: GroupStartRow) -> tuple[Any, ...]:
    return start_rank(row.verdict), -(row.skipped_records or 0), row.group_id
