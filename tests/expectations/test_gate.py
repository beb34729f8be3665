"""The gate on real tables: results once, critical failures stop, nothing is validated twice or left out."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import (
    CONFIGS,
    NOW,
    RUN,
    changed,
    fill,
    groups,
    logs,
    range_row,
    ranges,
    reconciliations,
    row_where,
    states,
    without,
)
from state_topics.coordinator_log import OTHER_TOPIC, TOPIC, Coordinator, batch, everyday, share_partition

from acktrail.columnar.schemas.table_schemas import EXPORT_RANGES, TABLES
from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, InputError, QualityGateFailed
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail_expectations import gate
from acktrail_expectations.gate import pass_gate, validate, validate_run
from acktrail_expectations.inputs import validation_positions
from acktrail_expectations.inputs.run_data import RunData
from acktrail_expectations.inputs.validation_positions import SEQUENCE, read_positions
from acktrail_expectations.results import QualityResult, ValidationSummary, record, recorded

ALL_CHECKS = 82


@pytest.fixture(scope="module")
def validated_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with everyday life, after the validation of their only run."""
    folder = tmp_path_factory.mktemp("validated") / "tables"
    validate(fill(folder), RUN)
    return folder


@pytest.fixture
def config(validated_once: Path, tmp_path: Path) -> TablesConfig:
    """A test's own copy of tables that are validated already."""
    shutil.copytree(validated_once, tmp_path / "tables")
    return TablesConfig(uri=str(tmp_path / "tables"))


def stored(config: TablesConfig, run_id: str = RUN) -> pa.Table:
    return Tables(config).read("quality_results", where=pc.field("run_id") == run_id)


def compared(summary: ValidationSummary, suite: str, rule: str) -> int | None:
    return named(summary, suite, rule).element_count


def named(summary: ValidationSummary, suite: str, rule: str) -> QualityResult:
    return next(r for r in summary.results if (r.suite, r.expectation) == (suite, rule))


def failed(summary: ValidationSummary) -> set[tuple[str, str]]:
    """What fails, without what is only for information: the sample has finished records at a start offset."""
    return {(r.suite, r.expectation) for r in summary.failed if r.severity is not QualitySeverity.INFO}


def export_more(config: TablesConfig, life: Coordinator, records: pa.Table, run_id: str) -> None:
    """What a later run of exporter and reconciler adds: `records` beyond those that are there."""
    tables = Tables(config)
    there = {(r["state_partition"], r["offset"]) for r in tables.read("state_records").to_pylist()}
    new = [
        row | {"run_id": run_id} for row in records.to_pylist() if (row["state_partition"], row["offset"]) not in there
    ]
    added = pa.Table.from_pylist(new, schema=records.schema)
    tables.append("state_records", added)
    tables.append("export_ranges", ranges(added, run_id, pieces=1))
    tables.append("offset_observations", logs(run_id))
    tables.append("share_partition_states", states(life, run_id))
    tables.append("reconciliations", reconciliations(life, run_id))


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
        assert caught.value.failures == (("reconciliations", "no_past_log_end", 1),)
        assert RUN in caught.value.hint
        assert stored(config).num_rows == ALL_CHECKS

    row = stored(config).filter(pc.field("expectation") == "no_past_log_end").to_pylist()[0]
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

    ahead, beyond = (RULE_BY_ID[rule] for rule in ("no_durable_ahead", "no_past_log_end"))
    _, first, second = caught.value.hint.splitlines()
    assert first.startswith("no_durable_ahead (reconciliations), first: a\\n\\x1b[31mb/orders/0.")
    assert second == (
        f"no_past_log_end (reconciliations), first: orders/orders/0. What to do: {beyond.advice}"
        " See docs/rules.md#past_log_end"
    )
    assert ahead.advice in first


def totals(config: TablesConfig) -> list[str]:
    """The run of each validation that has totals, after comparing them with its results."""
    rows = Tables(config).read("quality_totals").to_pylist()
    results = Tables(config).read("quality_results").to_pylist()
    for row in rows:
        own = [r for r in results if all(r[name] == row[name] for name in ("run_id", "evaluated_at", "suite"))]
        assert row["holds"] + row["fails"] + row["not_evaluated"] == len(own) > 0
        assert row["rows_compared"] == sum(r["element_count"] for r in own)
        broken = [r["severity"] for r in own if r["state"] == "fails"]
        assert (row["critical_fails"], row["info_fails"]) == (broken.count("critical"), broken.count("info"))
    found = sorted({(row["evaluated_at"], row["run_id"]) for row in rows})
    assert len(rows) == 5 * len(found)
    return [run_id for _, run_id in found]


def test_totals_are_written_once_for_each_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation adds a row a suite; a repetition adds none; a process that died between results and totals, and
    results of releases without totals, are made good by the next validation."""
    life = everyday()
    config = fill(tmp_path, life)
    with monkeypatch.context() as patched:
        patched.setattr(gate, "record_totals", lambda *_: None)
        validate(config, RUN)
        export_more(config, life, life.table(), "run-2")
        validate(config, "run-2")
    assert Tables(config).read("quality_totals").num_rows == 0

    validate(config, RUN)
    assert totals(config) == [RUN, "run-2"]
    for run_id in ("run-2", RUN):
        validate(config, run_id)
    assert totals(config) == [RUN, "run-2"]
    idle_run(config, "run-3", life)
    validate(config, "run-3")
    assert totals(config) == [RUN, "run-2", "run-3"]


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

    assert failed(summary) == {("reconciliations", "no_unknown"), ("reconciliations", "no_live_ahead")}
    is_legal = pc.field("severity") == "info"
    assert stored(config).filter(~pc.field("success") & ~is_legal).num_rows == 2


def test_a_later_run_validates_what_is_new(config: TablesConfig) -> None:
    """Records and ranges are validated by the first run after them; predecessors are found across the border."""
    life = everyday()
    before = life.table().num_rows
    life.patience(100)
    life.write(share_partition("orders"), 2, batch(7, 8))
    for key in tuple(life.states):
        life.initialize(key, state_epoch=10)
    export_more(config, life, life.table(), "run-2")

    summary = validate(config, "run-2")

    new = life.table().num_rows - before
    assert failed(summary) == set()
    assert compared(summary, "state_records", "record_decoded") == new
    assert compared(summary, "state_records", "snapshot_epoch_step") == len(life.states)
    assert compared(summary, "state_records", "update_epoch_matches") == 1
    assert compared(summary, "export_ranges", "export_contiguous") == 3
    assert compared(summary, "export_ranges", "records_stored") == 3
    assert compared(summary, "share_partition_states", "share_partition_once") == len(life.states)


def test_a_hole_between_two_runs_is_found(config: TablesConfig) -> None:
    """An offset that falls between what two runs exported is critical unless the exporter noted it."""
    life = everyday()
    life.patience(100)
    for offset in (7, 9):
        life.write(share_partition("orders"), 2, batch(offset, offset))
    with_hole = without(life.table(), row_where(life.table(), state_partition=0, offset=19))
    export_more(config, life, with_hole, "run-2")

    with pytest.raises(QualityGateFailed, match="export_contiguous"):
        validate(config, "run-2")

    summary = validate_run(Tables(config), "run-2")
    assert failed(summary) == {("export_ranges", "export_contiguous"), ("state_records", "offsets_dense")}
    assert named(summary, "export_ranges", "export_contiguous").observed_value == "0/20-20"


def test_a_noted_gap_is_an_error_and_explains_the_hole(config: TablesConfig) -> None:
    """What Kafka pruned before the export is reported once, as what it is, and nothing else fails for it."""
    life = everyday()
    life.patience(100)
    for offset in (7, 9):
        life.write(share_partition("orders"), 2, batch(offset, offset))
    export_more(config, life, life.table().slice(0, 0), "run-2")
    last = life.table().filter((pc.field("state_partition") == 0) & (pc.field("offset") == 20))
    Tables(config).append("state_records", last)
    gap = range_row(0, 20, 20, "run-2") | {"gap_first": 19, "gap_last": 19}
    Tables(config).append("export_ranges", pa.Table.from_pylist([gap], schema=EXPORT_RANGES))

    summary = validate(config, "run-2")

    assert failed(summary) == {("export_ranges", "nothing_pruned_before_export")}


def test_a_run_that_nobody_validated_is_validated_with_the_next(tmp_path: Path) -> None:
    """Ranges and records of a run that was never validated do not escape."""
    life = everyday()
    config = fill(tmp_path, life)
    export_more(config, life, life.table(), "run-2")

    summary = validate(config, "run-2")

    assert compared(summary, "state_records", "record_decoded") == life.table().num_rows
    assert compared(summary, "export_ranges", "records_accounted_for") == ranges(life.table()).num_rows
    again = validate_run(Tables(config), RUN)
    assert compared(again, "state_records", "record_decoded") == 0
    assert compared(again, "export_ranges", "records_accounted_for") == ranges(life.table()).num_rows


def test_every_record_can_be_validated_again(config: TablesConfig) -> None:
    """A second look at everything finds what the first one found and changes neither results nor positions."""
    life = everyday()
    export_more(config, life, life.table(), "run-2")
    validate(config, "run-2")
    version = Tables(config).snapshot("quality_results").version

    summary = validate_run(Tables(config), "run-2", every_record=True)

    assert not summary.recorded
    assert totals(config) == [RUN, "run-2"]
    assert compared(summary, "state_records", "record_decoded") == life.table().num_rows
    assert Tables(config).snapshot("quality_results").version == version


def test_many_records_are_validated_in_windows(config: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on how many records are looked at together."""
    whole = validate_run(Tables(config), RUN, every_record=True)
    for most in (7, 20):
        monkeypatch.setattr(validation_positions.record_tables, "__defaults__", (most,))
        assert validate_run(Tables(config), RUN, every_record=True).results == whole.results


@pytest.mark.parametrize("twice", [False, True], ids=["later ones first", "some twice"])
def test_records_that_lie_in_no_order_are_read_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """Files in another order than the log's, as an optimized table has them: the same results, by windows of offsets;
    a record that is stored twice is found."""
    life = everyday()
    records = life.table()
    middle = records.num_rows // 2
    config = fill(
        tmp_path, life, state_records=records if twice else records.slice(middle), export_ranges=ranges(records)
    )
    Tables(config).append("state_records", records.slice(3, 1) if twice else records.slice(0, middle))
    for most in (15, 1_000):
        monkeypatch.setattr(validation_positions.offset_slices, "__defaults__", (most,))

        summary = validate_run(Tables(config), RUN, every_record=True)

        assert failed(summary) == ({("state_records", "record_once")} if twice else set())
        assert compared(summary, "state_records", "record_decoded") == records.num_rows + twice


def test_two_validations_at_once_leave_one_set_of_results(tmp_path: Path) -> None:
    """Of two that read the same positions, the second one's commit is refused; both report what was recorded."""
    config = fill(tmp_path)
    store = Tables(config)
    slow = RunData.read(store, RUN, every_record=False)
    summary = validate_run(store, RUN)

    with pytest.raises(ConcurrentCommit):
        record(store, summary, SEQUENCE, slow.since.sequence, slow.validated.transactions)

    assert stored(config).num_rows == ALL_CHECKS
    assert validate_run(store, RUN) == summary


def test_positions_are_those_of_the_commit(config: TablesConfig) -> None:
    """How far each state partition was validated is kept with the results."""

    positions = read_positions(Tables(config).snapshot("quality_results"), range(5))

    expected = {0: 19, 1: 8, 2: 5}
    assert (positions.records, positions.ranges, positions.sequence) == (expected, expected, 1)


def idle_run(config: TablesConfig, run_id: str, life: Coordinator) -> None:
    """What a run leaves that found no new record."""
    tables = Tables(config)
    tables.append("group_observations", groups(CONFIGS, run_id))
    tables.append("offset_observations", logs(run_id))
    tables.append("share_partition_states", states(life, run_id))
    tables.append("reconciliations", reconciliations(life, run_id))


def test_nothing_compared_is_not_evaluated_and_said(config: TablesConfig, caplog: pytest.LogCaptureFixture) -> None:
    """A run without a new record: rules on records and ranges neither hold nor fail, in the summary, in the table and
    in the log, with the reason; it passes."""
    life = everyday()
    idle_run(config, "run-2", life)
    caplog.set_level("INFO", "acktrail.quality")

    summary = validate(config, "run-2")

    open_ = {result.suite for result in summary.not_evaluated}
    assert open_ == {"state_records", "export_ranges"}
    assert (len(summary.not_evaluated), len(summary.holding), failed(summary)) == (39, 42, set())
    rows = stored(config, "run-2").to_pylist()
    assert [row["success"] for row in rows if row["state"] == "not_evaluated"] == [None] * 39
    assert {row["reason"] for row in rows if row["state"] == "not_evaluated"} == {
        "no state record came since the last validation",
        "nothing was exported since the last validation",
        "records are compared with their raw bytes by acktrail validate --all",
    }
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0] == (
        "42 of 82 expectations hold, 1 fail (1 of them only for information), 39 not evaluated (16 of them critical)"
    )
    assert logged[1].startswith("export_ranges: 11 not evaluated, 8 of them critical: nothing was exported")


def test_what_the_observation_lacks_is_not_evaluated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where no log could be seen, nothing is known of windows: the rules on them say which column is unknown."""
    config = fill(tmp_path, offset_observations=logs(ends={}))

    summary = validate(config, RUN)

    result = named(summary, "share_partition_states", "end_offset_le_log_end")
    assert (result.success, result.reason) == (None, "not known: log_end_offset, in any of 4 rows")
    assert result in summary.critical_without_bounds
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"share_partition_states: 3 not evaluated, 3 of them critical: {result.reason}" in warned


def test_a_run_that_was_not_reconciled_is_refused(tmp_path: Path) -> None:
    """Nothing passes on nothing, and no result stays behind; the hint names the command."""
    nothing = {name: TABLES[name].empty_table() for name in ("share_partition_states", "reconciliations")}
    config = fill(tmp_path, **nothing)

    with pytest.raises(InputError) as caught:
        validate(config, RUN)

    assert f"acktrail reconcile --run-id {RUN}" in caught.value.hint
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

    assert "acktrail export" in caught.value.hint


def test_a_reconciliation_without_share_partitions_counts(tmp_path: Path) -> None:
    """A cluster without share partitions was reconciled when the reconciliation left its commit."""
    config = TablesConfig(uri=str(tmp_path))
    tables = Tables(config)
    tables.append("offset_observations", logs())
    commit = {reconciliation_commit("cluster-1", RUN, "0"): 1}
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


def test_results_of_older_releases_stay_readable(tmp_path: Path) -> None:
    """Rows without a state: what compared nothing is not evaluated, and results made before the reconciliation are
    renewed."""
    life = everyday()
    config = fill(tmp_path, life)
    row = {"run_id": RUN, "suite": "reconciliations", "severity": "critical", "success": True, "unexpected_count": 0}
    old = [
        {**row, "expectation": "share_partition_once", "element_count": 0, "evaluated_at": NOW},
        {**row, "expectation": "no_past_log_end", "element_count": 4, "evaluated_at": NOW},
    ]
    Tables(config).append("quality_results", pa.Table.from_pylist(old, schema=TABLES["quality_results"]))

    known = recorded(Tables(config), RUN)

    assert known is not None
    assert [result.success for result in known.results] == [None, True]
    assert len(validate(config, RUN).results) == ALL_CHECKS
    current = [{**each, "element_count": 4, "evaluated_at": NOW + dt.timedelta(days=20_000)} for each in old]
    Tables(config).append("quality_results", pa.Table.from_pylist(current, schema=TABLES["quality_results"]))
    assert len(validate(config, RUN).results) == 2


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

    assert failed(summary) == {("reconciliations", "no_unknown")}
    assert named(summary, "reconciliations", "no_unknown").observed_value == f"{hostile.group_id}/orders/0"
