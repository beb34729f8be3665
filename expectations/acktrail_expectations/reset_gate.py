"""The gate of a reset: its plan before it is approved, its result once it was verified.

The rules on a plan restate what the planner promises, from only the stored rows: a plan that breaks one was not made
by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.change.audit.plan_life import Status
from acktrail.change.change_kind import parse_plan
from acktrail.change.plan.change_plan import ChangePlan, partition_rows
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_expectations.evaluation import checks_of, evaluate, share_partition
from acktrail_expectations.frames.frame_columns import frame_of, known_true, where
from acktrail_expectations.gate import validate_once
from acktrail_expectations.rule_results import QualityResult, ValidationSummary

_NUMBERS: Final = (
    *("partition", "log_start_offset", "log_end_offset", "wanted_offset", "target_offset", "to_deliver"),
    *("hidden_ahead", "delivered_again", "passed_again", "acknowledgements_known", "archived_known"),
    *("passed_acknowledged", "passed_archived", "skipped"),
)
_TEXTS: Final = ("group_id", "topic", "topic_id", "clamp")
_TYPES: Final = dict.fromkeys(_TEXTS, "object") | dict.fromkeys(_NUMBERS, "Int64") | {"refused": "boolean"}
_DONE: Final = [status.value for status in Status if status.is_ok]
_ROW_COUNT: Final = "row_count_as_planned"


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
    rows = {"share partitions in the plan's text": len(plan.partitions), "in the row of the plan": stored["partitions"]}
    results = partial(_results, "reset_plan", rows, partial(reset_plan_frame, plan))
    return validate_once(store, f"reset-plan-{plan_id}", stored["cluster_id"], rows, results)


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
    verified = pc.max(executions["audit_sequence"]).as_py()
    frame = reset_result_frame(executions)
    planned = (_stored_plan(store, plan_id) or {}).get("partitions")
    rows = {"share partitions with a result": len(frame), "share partitions of the plan": planned}
    results = partial(_results, "reset_result", rows, lambda: frame)
    run_id, cluster_id = f"reset-result-{plan_id}-{attempt}-{verified}", executions["cluster_id"][0].as_py()
    return validate_once(store, run_id, cluster_id, rows, results)


def _results(
    suite: str, rows: Mapping[str, int | None], frame: Callable[[], pd.DataFrame]
) -> tuple[QualityResult, ...]:
    """One row says whether there are as many share partitions as the plan has (None: not known, which fails), and at
    least one: on no row the other rules have nothing to compare."""
    found, planned = rows.values()
    counted = pd.DataFrame({"is_whole": [found == planned and bool(found)]})
    said = ", ".join(f"{what}: {'unknown' if number is None else number}" for what, number in rows.items())
    (count,), others = (
        [check for check in checks_of(suite) if (check.rule.id == _ROW_COUNT) is wanted] for wanted in (True, False)
    )
    whole = evaluate(suite, [count], counted, lambda _: said)
    return (*whole, *evaluate(suite, others, frame(), share_partition))


def _stored_plan(store: Tables, plan_id: str) -> dict[str, Any] | None:
    columns = ["cluster_id", "partitions", "plan"]
    return next(iter(store.rows("reset_plans", {"plan_id": plan_id}, columns=columns)), None)


def reset_plan_frame(plan: ChangePlan) -> pd.DataFrame:
    """The share partitions of a plan.

    Returns:
        ``_TEXTS``, ``_NUMBERS``, `refused`, and `sent_target` (missing where the share partition is refused),
        `unclamped_target` (of those that were not clamped), `has_target_or_refusal`, `unallowed_skip`,
        `records_to_deliver` (log end less target, without the offsets that are no records) and
        `sum_of_delivered_again` (what lies below the start offset, and what is finished in the state).
    """
    rows = partition_rows(plan)
    columns = {name: pd.array([row[name] for row in rows], dtype=kind) for name, kind in _TYPES.items()}
    frame = _with_topic_ids(pd.DataFrame(columns))  # at no time floats: they do not hold every offset
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
        The columns of ``RESET_EXECUTIONS`` and `is_settled`, `is_done`, `has_evidence` (a state record shows it, or
        nothing was to be shown), `done_start_offset` and `done_described_start_offset` (missing where it is not done).
    """
    rows = _with_topic_ids(frame_of(executions))
    ordered = rows.sort_values(["attempt", "audit_sequence"], kind="stable", na_position="first")
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


def _with_topic_ids(frame: pd.DataFrame) -> pd.DataFrame:
    """A topic that is not there has no id: its name stands in the place, so that two of them are two."""
    return frame.assign(topic_id=frame["topic_id"].fillna(frame["topic"]))
