"""The gate on real tables: results once, critical failures stop, nothing is validated twice or left out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.gate_scenes import (
    ALL_CHECKS,
    compared,
    export_more,
    failed,
    named,
    stored,
    totals,
    validate,
)
from expectations.sample_tables import (
    RUN,
    changed,
    fill,
    logs,
    ranges,
    reconciliations,
    row_where,
    states,
)
from state_topics.coordinator_log import OTHER_TOPIC, TOPIC, batch, everyday, share_partition

from acktrail.config import TablesConfig
from acktrail.errors import InputError, QualityGateFailed
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail_expectations.gate import pass_gate, validate_run
from acktrail_expectations.results import recorded


def test_a_clean_run_passes_and_is_recorded_once(tmp_path: Path) -> None:
    """Every expectation has one row; validating the run again gives the same results and adds none."""
    config = fill(tmp_path)

    summary = validate(config, RUN)
    again = validate(config, RUN)

    assert failed(summary) == set()
    assert summary == again
    assert len(summary.results) == stored(config).num_rows == ALL_CHECKS
    assert summary.cluster_id == "cluster-1"
    assert set(stored(config)["cluster_id"].to_pylist()) == {"cluster-1"}


def test_a_critical_failure_stops_the_run_after_it_is_recorded(tmp_path: Path) -> None:
    """The results are in the table when the gate closes; it closes again for a second try, and records nothing more."""
    life = everyday()
    config = fill(tmp_path, life, reconciliations=changed(reconciliations(life), 0, verdict="past_log_end"))

    for _ in range(2):
        with pytest.raises(QualityGateFailed) as caught:
            validate(config, RUN)
        assert caught.value.failures == (("reconciliations", "past_log_end", 1),)
        assert RUN in caught.value.hint
        assert stored(config).num_rows == ALL_CHECKS

    row = stored(config).filter(pc.field("expectation") == "past_log_end").to_pylist()[0]
    assert (row["severity"], row["success"], row["unexpected_count"]) == ("critical", False, 1)
    assert row["observed_value"] == "orders/orders/0"


def test_a_stopped_gate_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    """The hint has a line for each rule: the first subjects by the topic's name, the advice and the page of the rule;
    names are printable."""
    life = everyday()
    hostile = share_partition("a\n\x1b[31mb")
    life.initialize(hostile)
    verdicts = changed(reconciliations(life), 0, verdict="past_log_end")
    verdicts = changed(verdicts, row_where(verdicts, group_id=hostile.group_id), verdict="durable_ahead")

    with pytest.raises(QualityGateFailed) as caught:
        validate(fill(tmp_path, life, reconciliations=verdicts), RUN)

    ahead, beyond = (RULE_BY_ID[rule] for rule in ("durable_ahead", "past_log_end"))
    _, first, second = caught.value.hint.splitlines()
    assert first.startswith("durable_ahead (reconciliations), first: a\\n\\x1b[31mb/orders/0.")
    assert second == (
        f"past_log_end (reconciliations), first: orders/orders/0. What to do: {beyond.advice}"
        " See docs/rules.md#past_log_end"
    )
    assert ahead.advice in first


def test_totals_are_those_of_the_results(tmp_path: Path) -> None:
    """A validation is added up by suite; a repetition adds none."""
    life = everyday()
    config = fill(tmp_path, life)
    validate(config, RUN)
    export_more(config, life, life.table(), "run-2")
    for run_id in ("run-2", RUN):
        validate(config, run_id)
    assert totals(config) == [RUN, "run-2"]


def test_a_partition_added_to_the_state_topic_stops_the_gate(config: TablesConfig) -> None:
    """The first validation remembers how many there are; from the change on every run is stopped."""
    life = everyday()
    added = logs("run-2").to_pylist()
    added += [row | {"partition": 3, "log_end_offset": 0} for row in added if row["topic_id"] == "state"][:1]
    tables = Tables(config)
    for run_id in ("run-2", "run-3"):
        rows = [row | {"run_id": run_id} for row in added]
        tables.append("offset_observations", pa.Table.from_pylist(rows, schema=TABLES["offset_observations"]))
        tables.append("share_partition_states", states(life, run_id))
        tables.append("reconciliations", reconciliations(life, run_id))

        with pytest.raises(QualityGateFailed, match="state_topic_partition_count_constant"):
            validate(config, run_id)


def test_warnings_and_errors_are_reported_and_pass(tmp_path: Path) -> None:
    """A warning and an error are in the results and stop nothing."""
    life = everyday()
    verdicts = changed(changed(reconciliations(life), 0, verdict="unknown"), 1, verdict="live_ahead")
    config = fill(tmp_path, life, reconciliations=verdicts)

    summary = validate(config, RUN)

    assert failed(summary) == {("reconciliations", "unknown"), ("reconciliations", "live_ahead")}
    is_legal = pc.field("severity") == "info"
    assert stored(config).filter(~pc.field("success") & ~is_legal).num_rows == 2


def test_a_run_that_was_not_reconciled_is_refused(tmp_path: Path) -> None:
    """Nothing passes on nothing, and no result stays behind; the hint names the command."""
    nothing = {name: TABLES[name].empty_table() for name in ("share_partition_states", "reconciliations")}
    config = fill(tmp_path, **nothing)

    with pytest.raises(InputError) as caught:
        validate(config, RUN)

    assert f"acktrail run reconcile --run-id {RUN}" in caught.value.hint
    assert stored(config).num_rows == 0


def test_a_reconciliation_that_stopped_half_way_is_refused(tmp_path: Path) -> None:
    """States without a verdict are no reconciliation."""
    life = everyday()
    config = fill(tmp_path, life, reconciliations=reconciliations(life).slice(1))

    with pytest.raises(InputError, match="3 of 4 share partitions"):
        validate(config, RUN)


def test_a_run_that_observed_nothing_is_told_apart(tmp_path: Path) -> None:
    """It can never be reconciled: the hint says what makes one that can."""
    config = TablesConfig(uri=str(tmp_path))
    Tables(config).append("export_ranges", ranges(everyday().table()))

    with pytest.raises(InputError) as caught:
        validate(config, RUN)

    assert "acktrail run export" in caught.value.hint


def test_a_reconciliation_without_share_partitions_counts(tmp_path: Path) -> None:
    """A cluster without share partitions was reconciled when the reconciliation left its commit."""
    config = TablesConfig(uri=str(tmp_path))
    tables = Tables(config)
    tables.append("offset_observations", logs())
    commit = {reconciliation_commit("cluster-1", RUN): 1}
    tables.append("reconciliations", TABLES["reconciliations"].empty_table(), transactions=commit)

    summary = validate(config, RUN)

    of_the_topic = {r.expectation: r.success for r in summary.results if r.suite == "state_partitions"}
    assert of_the_topic == {
        "state_topic_partition_count_constant": None,
        "export_complete": False,
        "export_fresh": True,
    }
    assert (len(summary.not_evaluated), len(summary.results)) == (ALL_CHECKS - 2, ALL_CHECKS)


def test_results_of_a_run_that_grew_are_renewed(config: TablesConfig) -> None:
    """More records, or a new reconciliation, under the same run id: the newest validation counts, the older one stays
    readable; unchanged, nothing is validated again."""
    life = everyday()
    first = recorded(Tables(config), RUN)
    life.patience(100)
    life.write(share_partition("orders"), 2, batch(7, 8))
    export_more(config, life, life.table(), RUN)

    with pytest.raises(QualityGateFailed, match="share_partition_once"):  # two reconciliations under one id
        validate(config, RUN)

    newest = recorded(Tables(config), RUN)
    assert newest is not None
    assert newest != first
    assert compared(newest, "state_records", "record_decoded") == life.table().num_rows
    assert stored(config).num_rows == 2 * ALL_CHECKS
    assert validate_run(Tables(config), RUN) == recorded(Tables(config), RUN)
    assert stored(config).num_rows == 2 * ALL_CHECKS


def test_a_state_beyond_the_log_is_critical_and_one_below_it_a_warning(tmp_path: Path) -> None:
    """The windows of states are those of the run's own observation."""
    short = logs(ends={(TOPIC, 0): (0, 3), (TOPIC, 1): (1, 100), (OTHER_TOPIC, 0): (0, 100)})
    config = fill(tmp_path, offset_observations=short)

    summary = validate_run(Tables(config), RUN)

    suite = "share_partition_states"
    assert failed(summary) == {
        (suite, "batches_below_log_end"),
        (suite, "end_offset_le_log_end"),
        (suite, "start_offset_ge_log_start"),
    }
    with pytest.raises(QualityGateFailed) as caught:
        pass_gate(summary)
    assert len(caught.value.failures) == 2


def test_hostile_group_names_are_values(tmp_path: Path) -> None:
    """Quotes, markup, line breaks and colons in a group id go through as they are."""
    life = everyday()
    hostile = share_partition("'; DROP TABLE x; --<script>:\n\x1b[31m \"%{batch}")
    life.initialize(hostile)
    life.write(hostile, 0, batch(0, 3))
    verdicts = reconciliations(life)
    index = row_where(verdicts, group_id=hostile.group_id)
    config = fill(tmp_path, life, reconciliations=changed(verdicts, index, verdict="unknown"))

    summary = validate(config, RUN)

    assert failed(summary) == {("reconciliations", "unknown")}
    assert named(summary, "reconciliations", "unknown").observed_value == f"{hostile.group_id}/orders/0"
