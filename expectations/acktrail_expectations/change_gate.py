"""The gate of a reset: its plan before it is approved, its result once it was verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, QualityGateFailed, UnknownName
from acktrail.tables.store import Tables
from acktrail_expectations.check import Check
from acktrail_expectations.evaluation import evaluate
from acktrail_expectations.examination import share_partition_subject
from acktrail_expectations.frames.reset_plan import reset_plan_frame
from acktrail_expectations.frames.reset_result import reset_result_frame
from acktrail_expectations.gate import log_summary
from acktrail_expectations.recording import record_apart, recorded
from acktrail_expectations.results import ValidationSummary
from acktrail_expectations.suites.reset_plan import reset_plan
from acktrail_expectations.suites.reset_result import reset_result

__all__ = ["validate_plan", "validate_result"]

_HINT: Final = "the results are in quality_results under run id {run_id}"


def validate_plan(tables: TablesConfig, plan_id: str) -> ValidationSummary:
    """Suite ``reset_plan`` on a stored plan; the results are recorded once, under run id ``reset-plan-ID``.

    Raises:
        UnknownName: no such plan is stored.
        QualityGateFailed: a critical expectation failed: the plan is not to be carried out.
    """
    store = Tables(tables)
    allow_skip = bool(json.loads(_plan_row(store, plan_id)["plan"])["request"]["allow_skip"])
    partitions = store.read("reset_plan_partitions", where=pc.field("plan_id") == plan_id)
    return _validated(
        store,
        f"reset-plan-{plan_id}",
        "reset_plan",
        reset_plan(),
        lambda: reset_plan_frame(partitions, allow_skip=allow_skip),
        partitions,
    )


def validate_result(tables: TablesConfig, plan_id: str) -> ValidationSummary:
    """Suite ``reset_result`` on the newest attempt at a plan, recorded once for each verification.

    Raises:
        UnknownName: nothing was ever verified of such a plan.
        QualityGateFailed: a critical expectation failed: not every share partition is known to stand at its target.
    """
    store = Tables(tables)
    executions = store.read("reset_executions", where=pc.field("plan_id") == plan_id)
    if not executions.num_rows:
        raise UnknownName("verified attempt at plan", plan_id)
    attempt = pc.max(executions["attempt"]).as_py()
    verified_ms = int(pc.max(executions["verified_at"]).as_py().timestamp() * 1000)
    return _validated(
        store,
        f"reset-result-{plan_id}-{attempt}-{verified_ms}",
        "reset_result",
        reset_result(),
        lambda: reset_result_frame(executions),
        executions,
    )


def _validated(
    store: Tables,
    run_id: str,
    suite: str,
    checks: tuple[Check, ...],
    frame: Callable[[], pd.DataFrame],
    rows: pa.Table,
) -> ValidationSummary:
    summary = recorded(store, run_id)
    if summary is None:
        cluster_id = rows["cluster_id"][0].as_py() if rows.num_rows else None
        results = evaluate(suite, checks, frame(), share_partition_subject)
        summary = ValidationSummary(cluster_id=cluster_id, run_id=run_id, results=results)
        try:
            record_apart(store, summary)
        except ConcurrentCommit:
            summary = recorded(store, run_id) or summary
    log_summary(summary)
    failures = [(r.suite, r.expectation, r.unexpected_count or 0) for r in summary.critical_failures]
    if failures:
        raise QualityGateFailed(failures, hint=_HINT.format(run_id=run_id))
    return summary


def _plan_row(store: Tables, plan_id: str) -> dict[str, str]:
    rows = store.read("reset_plans", columns=["plan_id", "plan"], where=pc.field("plan_id") == plan_id).to_pylist()
    if not rows:
        raise UnknownName("plan", plan_id)
    return dict(rows[0])
