"""The gate of a reset: its plan before it is approved, its result once it was verified.

The rules on a plan restate what the planner promises, from the stored rows alone: a plan that breaks one was not made
by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.change.change_kind import parse_plan
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.plan_file import partition_rows
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, UnknownName
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail_expectations.gate import log_summary, pass_gate
from acktrail_expectations.gx.engine import core
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, evaluate, is_true, rule_check, unique
from acktrail_expectations.results import QualityResult, ValidationSummary, record, recorded
from acktrail_expectations.row_labels import SHARE_PARTITION
from acktrail_expectations.suites.frame_columns import frame_of, known_true, where

_STORED: Final = "share partitions in the plan's text: {rows}, in the row of the plan: {planned}"
_VERIFIED: Final = "share partitions with a result: {rows}, share partitions of the plan: {planned}"

_ROW_COUNT: Final = RULE_BY_ID["row_count_as_planned"]

_NUMBERS: Final = (
    *("partition", "log_start_offset", "log_end_offset", "wanted_offset", "target_offset", "to_deliver"),
    *("hidden_ahead", "delivered_again", "passed_again", "acknowledgements_known", "archived_known"),
    *("passed_acknowledged", "passed_archived", "skipped"),
)
_PARTITION_ROWS: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("group_id", "topic", "topic_id", "clamp")),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        pa.field("refused", pa.bool_()),
    ]
)
"""The columns of ``partition_rows`` that the frame is made of."""


_RESULT_COLUMNS: Final = (
    "attempt", "group_id", "topic", "topic_id", "partition", "target_offset", "status", "start_offset_after",
    "described_start_offset", "state_epoch_before", "state_epoch_after", "evidence_offset", "verified_at",
)  # fmt: skip
"""The columns of ``RESET_EXECUTIONS`` that the frame is made of."""

_DONE: Final = [status.value for status in Status if status.is_ok]

RESET_PLAN_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("share_partition_once", unique("group_id", "topic", "partition")),
    rule_check("target_or_refusal", is_true("has_target_or_refusal")),
    rule_check("target_not_negative", core.ExpectColumnValuesToBeBetween(column="sent_target", min_value=0)),
    rule_check("target_ge_log_start", at_least("sent_target", "log_start_offset")),
    rule_check("target_le_log_end", at_least("log_end_offset", "sent_target")),
    rule_check("target_is_wanted_unless_clamped", equal("unclamped_target", "wanted_offset")),
    rule_check(
        "skips_only_where_allowed", core.ExpectColumnValuesToBeInSet(column="unallowed_skip", value_set=[False])
    ),
    rule_check("to_deliver_is_log_end_less_target", equal("to_deliver", "records_to_deliver")),
    rule_check("delivered_again_adds_up", equal("delivered_again", "sum_of_delivered_again")),
    rule_check("delivered_again_le_to_deliver", at_least("to_deliver", "delivered_again")),
)
"""Rules on `reset_plan_frame`."""

RESET_RESULT_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("share_partition_once", unique("group_id", "topic", "partition")),
    rule_check("every_outcome_settled", is_true("is_settled")),
    rule_check("every_share_partition_done", is_true("is_done")),
    rule_check("start_offset_is_target", equal("done_start_offset", "target_offset")),
    rule_check("described_start_offset_is_target", equal("done_described_start_offset", "target_offset")),
    rule_check("state_epoch_not_back", at_least("state_epoch_after", "state_epoch_before")),
    rule_check("shown_by_a_state_record", is_true("has_evidence")),
)
"""Rules on `reset_result_frame`."""


def validate_plan(tables: TablesConfig, plan_id: str) -> ValidationSummary:
    """Suite ``reset_plan`` on a stored plan; the results are recorded once, under run id ``reset-plan-ID``.

    Raises:
        UnknownName: no such plan is stored.
        QualityGateFailed: a critical expectation failed: the plan is not to be carried out. One row for each of
            its share partitions is a rule too.
        PlanStale: the stored plan was edited.
    """
    store = Tables(tables)
    stored = _stored_plan(store, plan_id)
    if stored is None:
        raise UnknownName("plan", plan_id)
    plan = parse_plan(stored["plan"], f"plan {plan_id}")
    count = _row_count("reset_plan", rows=len(plan.partitions), planned=stored["partitions"], what=_STORED)
    run_id, cluster_id = f"reset-plan-{plan_id}", stored["cluster_id"]
    return _validated(store, run_id, cluster_id, count, RESET_PLAN_CHECKS, lambda: reset_plan_frame(plan))


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
    stored = _stored_plan(store, plan_id)
    planned = None if stored is None else stored["partitions"]
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
            summary = record(store, summary, run_id, store.transaction_version("quality_results", run_id))
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
        expectation=_ROW_COUNT.id,
        severity=_ROW_COUNT.severity,
        success=rows == planned and rows > 0,
        element_count=rows,
        unexpected_count=abs(rows - (planned or 0)),
        observed_value=what.format(rows=rows, planned="unknown" if planned is None else planned),
    )


def _stored_plan(store: Tables, plan_id: str) -> dict[str, Any] | None:
    columns = ["cluster_id", "partitions", "plan"]
    return next(iter(store.rows("reset_plans", {"plan_id": plan_id}, columns=columns)), None)


def reset_plan_frame(plan: ChangePlan) -> pd.DataFrame:
    """The share partitions of a plan.

    Returns:
        ``_PARTITION_ROWS`` and `sent_target` (missing where the share partition is refused), `unclamped_target` (of
        those that were not clamped), `has_target_or_refusal`, `unallowed_skip`, `records_to_deliver` (log end less
        target, without the offsets that are no records) and `sum_of_delivered_again` (what lies below the start
        offset, and what is finished in the state).
    """
    frame = frame_of(pa.Table.from_pylist(partition_rows(plan), schema=_PARTITION_ROWS))
    refused = known_true(frame["refused"])
    may_skip = isinstance(plan, ResetPlan) and plan.request.may_skip
    sent = where(frame["target_offset"], ~refused)
    skips = known_true(frame["skipped"] > 0) & ~refused
    return frame.assign(
        sent_target=sent,
        unclamped_target=where(sent, frame["clamp"].isna()),
        has_target_or_refusal=np.asarray(frame["target_offset"].notna(), dtype=np.bool_) | refused,
        unallowed_skip=skips & (not may_skip),
        records_to_deliver=frame["log_end_offset"] - sent - frame["hidden_ahead"],
        sum_of_delivered_again=frame["passed_again"]
        + (frame["acknowledgements_known"] - frame["passed_acknowledged"])
        + (frame["archived_known"] - frame["passed_archived"]),
    )


def reset_result_frame(executions: pa.Table) -> pd.DataFrame:
    """The rows of one plan, the newest of each share partition: a later attempt leaves out what an earlier one did.

    Returns:
        ``_RESULT_COLUMNS`` and `is_settled`, `is_done`, `has_evidence` (a state record shows it, or nothing was to
        be shown), `done_start_offset` and `done_described_start_offset` (missing where it is not done).
    """
    rows = frame_of(executions.select(list(_RESULT_COLUMNS)))
    ordered = rows.sort_values(["attempt", "verified_at"], kind="stable")
    frame = ordered.drop_duplicates(["group_id", "topic", "partition"], keep="last").reset_index(drop=True)
    done = np.asarray(frame["status"].isin(_DONE), dtype=np.bool_)
    by_record = done & np.asarray(frame["status"] != Status.OK_BY_DESCRIPTION.value, dtype=np.bool_)
    return frame.assign(
        is_settled=np.asarray(frame["status"] != Status.UNKNOWN.value, dtype=np.bool_),
        is_done=done,
        has_evidence=~by_record | np.asarray(frame["evidence_offset"].notna(), dtype=np.bool_),
        done_start_offset=where(frame["start_offset_after"], done),
        done_described_start_offset=where(frame["described_start_offset"], done),
    )
