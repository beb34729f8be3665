"""The gate run after run: each validates what is new, and what no run before it did."""

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
    idle_run,
    named,
    stored,
    validate,
)
from expectations.sample_tables import (
    RUN,
    fill,
    logs,
    range_row,
    ranges,
    row_where,
    without,
)
from state_topics.coordinator_log import batch, everyday, share_partition

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit, QualityGateFailed
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES
from acktrail.tables.delta.store import Tables
from acktrail_expectations.gate import validate_run
from acktrail_expectations.results import record
from acktrail_expectations.run_data import SEQUENCE, RunData

pytestmark = pytest.mark.usefixtures("plain_engine")


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
    slow = RunData.read(store, RUN, every_record=False)
    summary = validate_run(store, RUN)

    with pytest.raises(ConcurrentCommit):
        record(store, summary, SEQUENCE, slow.since.sequence, slow.validated.transactions)

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
    assert (len(summary.not_evaluated), len(summary.holding), failed(summary)) == (39, 42, set())
    rows = stored(config, "run-2").to_pylist()
    assert [row["success"] for row in rows if row["state"] == "not_evaluated"] == [None] * 39
    assert {row["reason"] for row in rows if row["state"] == "not_evaluated"} == {
        "no state record came since the last validation",
        "nothing was exported since the last validation",
        "records are compared with their raw bytes by acktrail run validate --all",
    }
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0] == (
        "42 of 82 expectations hold, 0 fail, 1 noted for information, 39 not evaluated (16 of them critical)"
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
