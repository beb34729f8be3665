"""What validations leave in the tables, and what later runs add to them; and rules by their plain meaning."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from expectations.sample_tables import (
    CONFIGS,
    RUN,
    groups,
    logs,
    ranges,
    reconciliations,
    states,
)
from state_topics.coordinator_log import Coordinator

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_expectations import evaluation
from acktrail_expectations.evaluation import SuiteCheck
from acktrail_expectations.gate import QualityResult, ValidationSummary, log_summary, pass_gate, validate_run

CHECKS = [
    ("state_records", 28, 8),
    ("share_partition_states", 26, 10),
    ("reconciliations", 14, 6),
    ("export_ranges", 11, 8),
    ("state_partitions", 3, 1),
    ("reset_plan", 11, 8),
    ("reset_result", 8, 7),
]
"""Suites, with how many checks each has and how many of them are critical."""
ALL_CHECKS = 82


def validate(config: TablesConfig, run_id: str) -> ValidationSummary:
    """Validate a run, then let it pass or stop it, as the DAGs do."""
    summary = validate_run(Tables(config), run_id)
    log_summary(summary)
    pass_gate(summary)
    return summary


def stored(config: TablesConfig, run_id: str = RUN) -> pa.Table:
    return Tables(config).read("quality_results", where=pc.field("run_id") == run_id)


def compared(summary: ValidationSummary, suite: str, rule: str) -> int | None:
    return named(summary, suite, rule).element_count


def named(summary: ValidationSummary, suite: str, rule: str) -> QualityResult:
    return next(r for r in summary.results if (r.suite, r.expectation) == (suite, rule))


def failed(summary: ValidationSummary) -> set[tuple[str, str]]:
    """What fails."""
    return {(r.suite, r.expectation) for r in summary.failed}


def export_more(config: TablesConfig, life: Coordinator, records: pa.Table, run_id: str) -> None:
    """What a later run of exporter and reconciler adds: `records` beyond those that are there."""
    tables = Tables(config)
    there = {(r["state_partition"], r["offset"]) for r in tables.read("state_records").to_pylist()}
    rows = records.to_pylist()
    new = [row | {"run_id": run_id} for row in rows if (row["state_partition"], row["offset"]) not in there]
    added = pa.Table.from_pylist(new, schema=records.schema)
    tables.append("state_records", added)
    tables.append("export_ranges", ranges(added, run_id, pieces=1))
    tables.append("offset_observations", logs(run_id))
    tables.append("share_partition_states", states(life, run_id))
    tables.append("reconciliations", reconciliations(life, run_id))


def idle_run(config: TablesConfig, run_id: str, life: Coordinator) -> None:
    """What a run leaves that found no new record."""
    tables = Tables(config)
    tables.append("group_observations", groups(CONFIGS, run_id))
    tables.append("offset_observations", logs(run_id))
    tables.append("share_partition_states", states(life, run_id))
    tables.append("reconciliations", reconciliations(life, run_id))


def plain_outcomes(checks: Sequence[SuiteCheck], frame: pd.DataFrame) -> dict[str, Any]:
    """What Great Expectations' engine says of a frame, by the meaning of each relation."""
    return {check.rule.id: _outcome(check, frame) for check in checks}


def _outcome(check: SuiteCheck, frame: pd.DataFrame) -> Any:
    condition = check.rule.expect
    assert condition is not None
    own, values = frame[list(check.columns)], list(condition.values)
    one, other, value = own.iloc[:, 0], own.iloc[:, -1], values[0] if values else None
    everywhere = pd.Series(data=True, index=frame.index)
    compared, holds = {
        "unique": lambda: (own.notna().any(axis="columns"), ~own.duplicated(keep=False)),
        "known": lambda: (everywhere, one.notna()),
        "unknown": lambda: (everywhere, one.isna()),
        "batches": lambda: (one.notna(), one),
        "in": lambda: (one.notna(), one.isin(values)),
        "not in": lambda: (one.notna(), ~one.isin(values)),
        "=": lambda: (own.notna().all(axis="columns"), one.isin(values) if values else one == other),
        "<=": lambda: (one.notna(), one <= value),
        ">=": lambda: (own.notna().all(axis="columns"), one >= (value if values else other)),
    }[condition.relation]()
    broken = frame[compared & ~holds.fillna(value=False).astype(bool)]
    most = evaluation.RESULT_FORMAT["partial_unexpected_count"]
    counts = {"element_count": int(compared.sum()), "unexpected_count": len(broken)}
    return SimpleNamespace(
        success=broken.empty, exception_info={}, result={**counts, "unexpected_rows": broken.head(most)}
    )
