"""What must hold of what the newest audit found: Great Expectations' checks, their results, and the gate.

Only proofs are compared: a verdict that is not proven is not evaluated, and never taken for kept order.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.tables.cluster_check import cluster_of
from acktrail.tables.delta.store import Tables
from acktrail_expansion.ordering.order import ExpansionStatus, FenceGap, OrderVerdict
from acktrail_expansion.settings import ordered_groups, settle_time
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.frame_columns import frame_of
from acktrail_expectations.gate import pass_gate
from acktrail_expectations.rule_results import QualityResult, ValidationSummary, record

SUITE: Final = "partition_expansions"
_COUNTER: Final = "expansion validations"
_UNKNOWN: Final = pa.scalar(None, pa.bool_())
_SETTLE_TIMES: Final = 2
"""After how many settle times an expansion that is still settling is late."""


def check_expansions(tables: Tables, run_id: str) -> ValidationSummary:
    """The results of the suite on what the newest audit found, recorded under run id ``expansions-RUN`` for the look
    `run_id`."""
    frames = {
        "expansion_fences": (_fences, ("topic", "partition", "event_id")),
        "partition_expansions": (_settling, ("topic", "old_count", "new_count")),
        "expansion_verdicts": (_verdicts, ("group_id", "topic", "partition", "event_id")),
    }
    results: list[QualityResult] = []
    for table, (rows, names) in frames.items():
        checks = [check for check in checks_of(SUITE) if check.rule.tables == (table,)]
        results += evaluate(SUITE, checks, frame_of(rows(tables)), partial(_label, names))
    looks = tables.snapshot("partition_observations")
    cluster_id = None if looks is None else cluster_of(looks)
    summary = ValidationSummary(cluster_id=cluster_id, run_id=f"expansions-{run_id}", results=tuple(results))
    try:
        return record(tables, summary, _COUNTER, tables.transaction_version("quality_results", _COUNTER))
    except ConcurrentCommit:
        return replace(summary, recorded=False)


def pass_expansion_gate(summary: ValidationSummary) -> None:
    """Let partition expansions pass unless a critical expectation failed. Raises QualityGateFailed: one did."""
    where = f"the results are in quality_results under run id {summary.run_id}"
    pass_gate(summary, f"what to do: docs/reference/rules.md; {where}")


def _label(names: Sequence[str], row: Mapping[str, Any]) -> str:
    """Names a row by these columns."""
    return ", ".join(f"{name} {row[name]}" for name in names)


def _fences(tables: Tables) -> pa.Table:
    columns = ("topic", "partition", "event_id", "fence_low", "fence_high", "late_records", "reason")
    rows = tables.read("expansion_fences", columns=columns)
    return rows.append_column("kept_records", pc.not_equal(pc.fill_null(rows["reason"], ""), FenceGap.TRUNCATED.value))


def _settling(tables: Tables) -> pa.Table:
    columns, where = ("topic", "old_count", "new_count"), pc.field("status") == ExpansionStatus.SETTLING.value
    rows = tables.read("partition_expansions", columns=(*columns, "first_seen_new_at"), where=where)
    late = pa.scalar(dt.datetime.now(dt.UTC) - _SETTLE_TIMES * settle_time(), INSTANT)
    return rows.append_column("is_in_time", pc.greater_equal(rows["first_seen_new_at"], late))


def _verdicts(tables: Tables) -> pa.Table:
    """With what is proven: whether order was kept, apart by whether the group needs it, and whether nothing was
    skipped."""
    columns = ("group_id", "topic", "partition", "event_id", "verdict", "skipped_records")
    rows, ordered = tables.read("expansion_verdicts", columns=columns), ordered_groups()
    named = [group for group in rows["group_id"].unique().to_pylist() if group in ordered]
    is_ordered = pc.is_in(rows["group_id"], pa.array(named, pa.string()))
    is_proof = pc.is_in(rows["verdict"], pa.array([OrderVerdict.SAFE.value, OrderVerdict.BROKEN.value]))
    is_safe, is_skipped = (pc.equal(rows["verdict"], each.value) for each in (OrderVerdict.SAFE, OrderVerdict.SKIPPED))
    kept = pc.if_else(is_proof, is_safe, _UNKNOWN)
    rows = rows.append_column("ordered_kept", pc.if_else(is_ordered, kept, _UNKNOWN))
    rows = rows.append_column("other_kept", pc.if_else(is_ordered, _UNKNOWN, kept))
    return rows.append_column("got_first", pc.and_kleene(pc.invert(is_skipped), pc.equal(rows["skipped_records"], 0)))
