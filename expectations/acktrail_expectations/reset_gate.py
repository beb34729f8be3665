"""The gate of a reset: its plan before it is approved, its result once it was verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_expectations.gate import SHARE_PARTITION, log_summary, pass_gate
from acktrail_expectations.gx.evaluation import evaluate
from acktrail_expectations.gx.suite_check import SuiteCheck
from acktrail_expectations.results import QualityResult, QualitySeverity, ValidationSummary, record, recorded
from acktrail_expectations.suites.resets import (
    RESET_PLAN_CHECKS,
    RESET_RESULT_CHECKS,
    reset_plan_frame,
    reset_result_frame,
)

_STORED: Final = "rows in reset_plan_partitions: {rows}, share partitions of the plan: {planned}"
_VERIFIED: Final = "share partitions with a result: {rows}, rows of the plan in reset_plan_partitions: {planned}"


def validate_plan(tables: TablesConfig, plan_id: str) -> ValidationSummary:
    """Suite ``reset_plan`` on a stored plan; the results are recorded once, under run id ``reset-plan-ID``, and again
    when the number of its rows changed.

    Raises:
        UnknownName: no such plan is stored.
        QualityGateFailed: a critical expectation failed: the plan is not to be carried out. One row for each of
            its share partitions is a rule too.
    """
    store = Tables(tables)
    columns = ["cluster_id", "plan_id", "partitions", "plan"]
    plans = store.read("reset_plans", columns=columns, where=pc.field("plan_id") == plan_id).to_pylist()
    if not plans:
        raise UnknownName("plan", plan_id)
    plan, partitions = plans[0], _partitions(store, plan_id)
    allow_skip = bool(json.loads(plan["plan"])["request"]["allow_skip"])
    count = _row_count("reset_plan", rows=partitions.num_rows, planned=plan["partitions"], what=_STORED)
    run_id, cluster_id = f"reset-plan-{plan_id}", plan["cluster_id"]
    return _validated(
        store, run_id, cluster_id, count, RESET_PLAN_CHECKS, lambda: reset_plan_frame(partitions, allow_skip=allow_skip)
    )


def validate_result(tables: TablesConfig, plan_id: str) -> ValidationSummary:
    """Suite ``reset_result`` on the newest result of every share partition of a plan, recorded once for each
    verification.

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
    frame = reset_result_frame(executions)
    planned = _partitions(store, plan_id).num_rows
    count = _row_count("reset_result", rows=len(frame), planned=planned, what=_VERIFIED)
    run_id, cluster_id = f"reset-result-{plan_id}-{attempt}-{verified_ms}", executions["cluster_id"][0].as_py()
    return _validated(store, run_id, cluster_id, count, RESET_RESULT_CHECKS, lambda: frame)


def _validated(
    store: Tables,
    run_id: str,
    cluster_id: str | None,
    count: QualityResult,
    checks: tuple[SuiteCheck, ...],
    frame: Callable[[], pd.DataFrame],
) -> ValidationSummary:
    """The recorded results where the number of rows is still the same, else new ones."""
    summary = recorded(store, run_id)
    if summary is None or count not in summary.results:
        results = (count, *evaluate(count.suite, checks, frame(), SHARE_PARTITION))
        summary = ValidationSummary(cluster_id=cluster_id, run_id=run_id, results=results)
        try:
            record(store, summary, run_id, store.transaction_version("quality_results", run_id))
        except ConcurrentCommit:
            summary = replace(summary, recorded=False)
    log_summary(summary)
    where = f"the results are in quality_results under run id {run_id}"
    pass_gate(summary, where if count.success else f"{count.observed_value}; {where}")
    return summary


def _row_count(suite: str, *, rows: int, planned: int | None, what: str) -> QualityResult:
    """The result of the rule that there are as many `rows` as the plan has share partitions (`planned`; None: not
    known, which fails), and at least one: on no row the other rules have nothing to compare. `what` names both."""
    return QualityResult(
        suite=suite,
        expectation="row_count_as_planned",
        severity=QualitySeverity.CRITICAL,
        success=rows == planned and rows > 0,
        element_count=rows,
        unexpected_count=abs(rows - (planned or 0)),
        observed_value=what.format(rows=rows, planned="unknown" if planned is None else planned),
    )


def _partitions(store: Tables, plan_id: str) -> pa.Table:
    return store.read("reset_plan_partitions", where=pc.field("plan_id") == plan_id)
