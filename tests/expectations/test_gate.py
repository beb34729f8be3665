"""The gate on real tables: results once, critical failures stop, nothing is validated twice or left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import (
    ALL_CHECKS,
    RUN,
    changed,
    compared,
    export_more,
    failed,
    fill,
    idle_run,
    logs,
    named,
    ranges,
    reconciliations,
    row_where,
    states,
    stored,
    validate,
    without,
)
from state_topics.coordinator_log import batch, everyday, share_partition

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, InputError, QualityGateFailed
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail_expectations.gate import validate_run
from acktrail_expectations.known_runs import run_rows
from acktrail_expectations.rule_results import record, recorded
from acktrail_expectations.validation_input import SEQUENCE, ValidationInput

_BATCH = ("first_offset", "last_offset", "delivery_state", "delivery_count")

pytestmark = pytest.mark.usefixtures("plain_engine")


def test_a_clean_run_passes_and_is_recorded_once(tmp_path: Path) -> None:
    """Every expectation has one row; validating the run again gives the same results and adds none."""
    config = fill(tmp_path)

    summary = validate(config, RUN)
    again = validate(config, RUN)

    assert failed(summary) == set()
    assert summary == again
    assert len(summary.results) == stored(config).num_rows == ALL_CHECKS
    assert len({result.suite for result in summary.results}) == 5
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

    config = fill(tmp_path, life, reconciliations=verdicts)
    with pytest.raises(QualityGateFailed) as caught:
        validate(config, RUN)

    ahead, beyond = (rule_catalogue().by_id[rule] for rule in ("durable_ahead", "past_log_end"))
    _, first, second = caught.value.hint.splitlines()
    assert first.startswith("durable_ahead (reconciliations), first: a\\n\\x1b[31mb/orders/0.")
    assert second == (
        f"past_log_end (reconciliations), first: orders/orders/0. What to do: {beyond.advice}"
        " See docs/reference/rules.md#past_log_end"
    )
    assert ahead.advice in first
    named_as_it_is = stored(config).filter(pc.field("expectation") == "durable_ahead")["observed_value"]
    assert named_as_it_is.to_pylist() == [f"{hostile.group_id}/orders/0"]


def test_a_partition_added_to_the_state_topic_stops_the_gate(config: TablesConfig) -> None:
    """The first validation remembers how many there are; from the change on every run is stopped."""
    life = everyday()
    added = logs("run-2").to_pylist()
    added += [row | {"partition": 3, "log_end_offset": 0} for row in added if row["topic_id"] == "state"][:1]
    tables = Tables(config)
    for run_id in ("run-2", "run-3"):
        tables.append("offset_observations", [row | {"run_id": run_id} for row in added])
        tables.append("share_partition_states", states(life, run_id))
        tables.append("reconciliations", reconciliations(life, run_id))

        with pytest.raises(QualityGateFailed, match="state_topic_partition_count_constant"):
            validate(config, run_id)


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


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("share_partition_states", "reconciliations"), f"acktrail run reconcile --run-id {RUN}"),
        (("reconciliations",), "0 of 4 share partitions"),
        (
            ("share_partition_states", "reconciliations", "group_observations", "offset_observations"),
            "run `acktrail run export --observe`",
        ),
    ],
)
def test_a_run_that_was_not_reconciled_is_refused(tmp_path: Path, missing: tuple[str, ...], says: str) -> None:
    """Nothing passes on nothing, states without a verdict are no reconciliation, and no result stays behind. The hint
    names the command."""
    config = fill(tmp_path, **{name: TABLES[name].empty_table() for name in missing})

    with pytest.raises(InputError) as caught:
        validate(config, RUN)

    assert says in f"{caught.value.message} {caught.value.hint}"
    assert stored(config).num_rows == 0


def test_a_doubled_state_is_judged(tmp_path: Path) -> None:
    """A second row of a share partition is no missing verdict: the gate stops by the rule on doubled rows."""
    life = everyday()
    rows = states(life)
    config = fill(tmp_path, life, share_partition_states=pa.concat_tables([rows, rows.slice(0, 1)]))

    with pytest.raises(QualityGateFailed) as caught:
        validate(config, RUN)

    assert caught.value.failures == (("share_partition_states", "share_partition_once", 2),)


def test_a_rule_is_not_judged_where_what_it_presumes_is_broken(tmp_path: Path) -> None:
    """Two finished batches that overlap break that rule only; sums of batches are not evaluated, although the sound
    rows are compared: a wrong sum there fails."""
    life = everyday()
    two = [dict(zip(_BATCH, quad, strict=True)) for quad in ((1, 4, 2, 1), (4, 6, 2, 2))]
    first, second = (row_where(states(life), group_id="orders", partition=partition) for partition in (0, 1))
    overlapping = changed(states(life), first, batches=two)

    for name, rows, holds in (("a", overlapping, None), ("b", changed(overlapping, second, archived_records=7), False)):
        summary = validate_run(Tables(fill(tmp_path / name, life, share_partition_states=rows)), RUN)
        of_sums = named(summary, "share_partition_states", "finished_records_match_batches")
        assert of_sums.success is holds
        assert (of_sums.reason is None) is (holds is False)
        assert ("share_partition_states", "batches_non_overlapping") in failed(summary)
        assert failed(summary) <= {
            ("share_partition_states", rule) for rule in ("batches_non_overlapping", of_sums.expectation)
        }


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
    lost = row_where(life.table(), state_partition=0, offset=19)
    export_more(config, life, without(life.table(), lost), "run-2")
    with pytest.raises(QualityGateFailed, match="export_contiguous"):
        validate(config, "run-2")
    summary = validate_run(Tables(config), "run-2")
    assert failed(summary) == {("export_ranges", "export_contiguous"), ("state_records", "offsets_dense")}
    assert named(summary, "export_ranges", "export_contiguous").observed_value == "0/20-20"


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
    assert compared(summary, "state_records", "record_decoded") == life.table().num_rows
    assert Tables(config).snapshot("quality_results").version == version


def test_a_record_that_is_stored_twice_is_found(tmp_path: Path) -> None:
    """Also where it lies in another file, behind later ones: such records are read a state partition at a time."""
    life = everyday()
    records = life.table()
    config = fill(tmp_path, life)
    Tables(config).append("state_records", records.slice(3, 1))

    summary = validate_run(Tables(config), RUN, every_record=True)

    assert failed(summary) == {("state_records", "record_once")}
    assert compared(summary, "state_records", "record_decoded") == records.num_rows + 1


def test_two_validations_at_once_leave_one_set_of_results(tmp_path: Path) -> None:
    """Of two that read the same positions, the second one's commit is refused; both report what was recorded."""
    config = fill(tmp_path)
    store = Tables(config)
    slow = ValidationInput.read(store, RUN, run_rows(store, RUN), every_record=False)
    summary = validate_run(store, RUN)

    late = replace(summary, cluster_id="of the later one")
    assert record(store, late, SEQUENCE, slow.since.sequence, slow.validated.transactions) == summary
    for others in (replace(summary, run_rows="other rows"), replace(summary, run_id="run-2")):
        with pytest.raises(ConcurrentCommit):
            record(store, others, SEQUENCE, slow.since.sequence, slow.validated.transactions)

    assert stored(config).num_rows == ALL_CHECKS
    assert validate_run(store, RUN) == summary


def test_nothing_compared_is_not_evaluated_and_said(config: TablesConfig, caplog: pytest.LogCaptureFixture) -> None:
    """A run without a new record: rules on records and ranges neither hold nor fail, in the summary, in the table and
    in the log, with the reason; it passes."""
    life = everyday()
    idle_run(config, "run-2", life)
    caplog.set_level("INFO", "acktrail.quality")

    summary = validate(config, "run-2")

    open_ = {result.suite for result in summary.not_evaluated}
    assert open_ == {"state_records", "export_ranges"}
    assert (len(summary.not_evaluated), summary.states["holds"], failed(summary)) == (41, 44, set())
    rows = stored(config, "run-2").to_pylist()
    assert [row["success"] for row in rows if row["state"] == "not_evaluated"] == [None] * 41
    assert {row["reason"] for row in rows if row["state"] == "not_evaluated"} == {
        "no state record came since the last validation",
        "nothing was exported since the last validation",
        "records are compared with their raw bytes by acktrail run validate --all",
    }
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0] == (
        "44 of 86 expectations hold, 0 fail, 1 noted for information, 41 not evaluated (18 of them critical)"
    )
    assert logged[2].startswith("export_ranges: 11 not evaluated, 8 of them critical: nothing was exported")
