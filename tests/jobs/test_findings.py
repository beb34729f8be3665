"""Rules that only findings report: each has rows in ``finding_rows.json`` that break it, and it alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.history.observed_run import Coverage, Observation, StateLog
from acktrail.model.rules.catalogue import parse_rules
from acktrail.tables.acknowledged_losses import acknowledged_losses
from acktrail.tables.delta.store import Tables
from acktrail_jobs.reconcile.findings import (
    PLACES,
    dropped_letter_findings,
    share_partition_findings,
    state_partition_findings,
    unpruned_findings,
    without_start_findings,
)
from acktrail_jobs.reconcile.verdict_rules import RECONCILED

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OBSERVATION = Observation(cluster_id="c", run_id="r", after_began_at=NOW, observed_at=NOW)
ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("finding_rows.json").read_text("utf-8"))
"""By rule: rows about share partitions, logs of state partitions, and places in them, or configurations of groups,
without what all of them have; by an empty text: what breaks none."""


def rules_found(tables: Tables, rows: dict[str, Any]) -> set[str]:
    """The rules of all findings about a run with these rows."""
    common = {"group_id": "g", "topic_id": "t", "topic": "orders", "partition": 0, "observed_at": NOW}
    verdicts = pa.Table.from_pylist([common | row for row in rows.get("share_partitions", ())], RECONCILED)
    places = pa.Table.from_pylist([{"state_partition": 0, **row} for row in rows.get("places", ())], PLACES)
    logs = [Coverage(state_partition=0, log=StateLog(log_start_before=0), **row) for row in rows.get("logs", [{}])]
    configs = [{"run_id": "r", "phase": "after", "configs": [*own.items()]} for own in rows.get("configs", ())]
    tables.append("group_observations", [own | {"group_id": f"g{number}"} for number, own in enumerate(configs)])
    found = [
        share_partition_findings(verdicts, OBSERVATION, acknowledged_losses(tables)),
        without_start_findings(verdicts, OBSERVATION),
        state_partition_findings(logs, OBSERVATION),
        unpruned_findings(places, {0: logs[0]}, OBSERVATION),
        dropped_letter_findings(tables, OBSERVATION),
    ]
    return {rule for table in found for rule in table["rule"].to_pylist()}


@pytest.mark.parametrize("rule", ROWS)
def test_rows_break_their_rule_and_no_other(tmp_path: Path, rule: str) -> None:
    """What is sound breaks none."""
    assert rules_found(Tables(TablesConfig(uri=str(tmp_path))), ROWS[rule]) == {rule} - {""}


def test_every_rule_without_a_suite_has_rows_that_break_it() -> None:
    """A new rule of the trunk needs rows here, or a suite with some."""
    catalogue = parse_rules(files("acktrail.model.rules").joinpath("rules.toml").read_text("utf-8"), "rules.toml")

    assert {rule.id for rules in catalogue.values() for rule in rules if not rule.suites} == ROWS.keys() - {""}
