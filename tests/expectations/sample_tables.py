"""Rows of every validated table for one everyday run, and small changes to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from state_topics.coordinator_log import CLUSTER, OTHER_TOPIC, STATE_PARTITIONS, TOPIC, Coordinator, everyday

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.batches import DURABLE_STATES, covered
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import STATE_TOPIC, state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail_expectations import evaluation
from acktrail_expectations.batch_expectations import broken_rows
from acktrail_expectations.evaluation import SuiteCheck
from acktrail_expectations.frames.frame_columns import PLACE, ObservedCluster, misplaced_keys, observed_cluster
from acktrail_expectations.frames.record_frames import StateRecordFrames
from acktrail_expectations.gate import log_summary, pass_gate, validate_run
from acktrail_expectations.rule_results import QualityResult, ValidationSummary

RUN = "run-1"
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
"""When everything was observed: a moment ago, so that it is fresh when it is validated."""
CONFIGS = {"share.delivery.count.limit": "5", "share.partition.max.record.locks": "2000"}
"""As Kafka 4.3 describes a group."""
NAMES = {TOPIC: "orders", OTHER_TOPIC: "audit"}
LOG_END = 100

Row = dict[str, Any]


def no_gaps() -> pa.Table:
    return TABLES["export_ranges"].empty_table().select(["state_partition", "gap_first", "gap_last"])


def record_frames(
    records: pa.Table, observed: ObservedCluster, gaps: pa.Table | None = None, **more: bool
) -> StateRecordFrames:
    """For pieces of `records`."""
    return StateRecordFrames(
        gaps=no_gaps() if gaps is None else gaps,
        cluster=observed,
        misplaced=misplaced_keys(records.select(PLACE), observed.state_partition_count),
        **more,
    )


def changed(table: pa.Table, index: int, **values: Any) -> pa.Table:
    """`table` with other values in one row."""
    rows = table.to_pylist()
    rows[index] |= values
    return pa.Table.from_pylist(rows, schema=table.schema)


def without(table: pa.Table, index: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, index), table.slice(index + 1)])


def row_where(table: pa.Table, **values: Any) -> int:
    """Index of the first row with these values."""
    return next(
        i for i, row in enumerate(table.to_pylist()) if all(row[name] == value for name, value in values.items())
    )


def rows_of(table: str, run_id: str, rows: Iterable[Row]) -> pa.Table:
    """Rows of a table as a run of the cluster leaves them: observed and exported a moment ago."""
    known = {"cluster_id": CLUSTER, "run_id": run_id, "observed_at": NOW, "exported_at": NOW, "error_code": 0}
    number = int(run_id.rpartition("-")[2])
    known |= {"run_number": number, "records_version": number}
    return pa.Table.from_pylist([known | row for row in rows], schema=TABLES[table])


def states(life: Coordinator, run_id: str = RUN) -> pa.Table:
    return rows_of("share_partition_states", run_id, map(_state_row, life.states.values()))


def _named(state: SharePartitionState) -> Row:
    return {**asdict(state.key), "topic": NAMES[state.key.topic_id]}


def _state_row(state: SharePartitionState) -> Row:
    copied = (
        *("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "first_unfinished_offset", "end_offset"),
        "delivery_complete_count",
    )
    counts = {
        f"{kind.name.lower()}_records": sum(
            covered(b, state.start_offset) for b in state.batches if b.delivery_state == kind
        )
        for kind in DURABLE_STATES
    }
    return {
        **_named(state),
        **{name: getattr(state, name) for name in copied},
        **counts,
        "state_partition": state_partition_of(state.key, STATE_PARTITIONS),
        "batches": [asdict(each) for each in state.batches],
        "completeness": "complete",
    }


def reconciliations(life: Coordinator, run_id: str = RUN) -> pa.Table:
    return rows_of("reconciliations", run_id, map(_reconciliation_row, life.states.values()))


def _reconciliation_row(state: SharePartitionState) -> Row:
    start, done = state.start_offset, state.delivery_complete_count
    lag = None if start is None or done is None else LOG_END - start - done
    return {
        **_named(state),
        "verdict": "match",
        "reason": "said so",
        "moved": False,
        "log_start_offset": 0,
        **dict.fromkeys(("durable_start_offset", "described_start_offset_after"), start),
        **dict.fromkeys(("durable_lag", "described_lag_after"), lag),
        **dict.fromkeys(("log_end_offset_before", "log_end_offset_after"), LOG_END),
    }


def ranges(records: pa.Table, run_id: str = RUN, pieces: int = 2) -> pa.Table:
    """The commits that brought `records`: `pieces` of them on each state partition."""
    rows = []
    for partition in sorted(set(records["state_partition"].to_pylist())):
        offsets = sorted(r["offset"] for r in records.to_pylist() if r["state_partition"] == partition)
        size = -(-len(offsets) // pieces)
        parts = (offsets[at : at + size] for at in range(0, len(offsets), size))
        rows += [range_row(partition, part[0], part[-1]) for part in parts]
    return rows_of("export_ranges", run_id, rows)


def range_row(partition: int, first: int, last: int) -> Row:
    return {
        "state_topic_id": "c3RhdGUtdG9waWMtaWQtMQ",
        "state_partition": partition,
        "first_offset": first,
        "last_offset": last,
        "log_start_offset": 0,
        "log_end_offset": last + 1,
        **dict.fromkeys(("records_read", "records_decoded"), last - first + 1),
        "records_quarantined": 0,
    }


def groups(configs: Mapping[str, str] | None, run_id: str = RUN) -> pa.Table:
    own = {"phase": "after", "group_id": "orders", "group_type": "share", "group_state": "Empty"}
    known = {"configs": None if configs is None else list(configs.items())}
    return rows_of("group_observations", run_id, [own | known])


def logs(run_id: str = RUN, ends: Mapping[tuple[str, int], tuple[int, int]] | None = None) -> pa.Table:
    """Log offsets of the state topic and of the topics that `ends` names: start and end by topic id and partition. Each
    log has grown by one record between the two samples."""
    known = {(topic, p): (0, LOG_END) for topic in (TOPIC, OTHER_TOPIC) for p in range(3)} if ends is None else ends
    names = {"state": STATE_TOPIC, **NAMES}
    rows = [
        {"phase": phase, "topic": names.get(topic, topic), "topic_id": topic, "partition": p}
        | {"log_start_offset": start, "log_end_offset": end - (phase == "before")}
        for phase in ("before", "after")
        for (topic, p), (start, end) in ({("state", p): (0, 6) for p in range(3)} | {**known}).items()
    ]
    return rows_of("offset_observations", run_id, rows)


def cluster(offsets: pa.Table | None = None, configs: Mapping[str, str] | None = None) -> ObservedCluster:
    """A cluster before 4.4, with the broker's default limit unless `configs` has another."""
    known = CONFIGS if configs is None else configs
    return observed_cluster(groups(known), logs() if offsets is None else offsets)


def fill(root: Path, life: Coordinator | None = None, run_id: str = RUN, **instead: pa.Table) -> TablesConfig:
    """Tables at `root` with one run; `instead` replaces tables by name."""
    lived = everyday() if life is None else life
    records = instead.get("state_records", lived.table())
    rows = {
        "state_records": records,
        "export_ranges": ranges(records, run_id),
        "group_observations": groups(CONFIGS, run_id),
        "offset_observations": logs(run_id),
        "share_partition_states": states(lived, run_id),
        "reconciliations": reconciliations(lived, run_id),
        **instead,
    }
    config = TablesConfig(uri=str(root))
    for name, table in rows.items():
        Tables(config).append(name, table)
    return config


ALL_CHECKS = 86


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


def idle_run(config: TablesConfig, run_id: str, life: Coordinator) -> None:
    """What a run leaves that found no new record."""
    tables = Tables(config)
    tables.append("group_observations", groups(CONFIGS, run_id))
    tables.append("offset_observations", logs(run_id))
    tables.append("share_partition_states", states(life, run_id))
    tables.append("reconciliations", reconciliations(life, run_id))


def export_more(config: TablesConfig, life: Coordinator, records: pa.Table, run_id: str) -> None:
    """What a later run of exporter and reconciler adds: `records` beyond those that are there."""
    tables = Tables(config)
    there = {(r["state_partition"], r["offset"]) for r in tables.read("state_records").to_pylist()}
    rows = records.to_pylist()
    new = [row | {"run_id": run_id} for row in rows if (row["state_partition"], row["offset"]) not in there]
    added = pa.Table.from_pylist(new, schema=records.schema)
    tables.append("state_records", added)
    tables.append("export_ranges", ranges(added, run_id, pieces=1))
    idle_run(config, run_id, life)


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
        "batches": lambda: (
            own.notna().all(axis="columns"),
            ~pd.Series(broken_rows(check.rule.id, frame), frame.index),
        ),
        "in": lambda: (one.notna(), one.isin(values)),
        "not in": lambda: (one.notna(), ~one.isin(values)),
        "=": lambda: (own.notna().all(axis="columns"), one.isin(values) if values else one == other),
        "<=": lambda: (one.notna(), one <= value),
        ">=": lambda: (own.notna().all(axis="columns"), one >= (value if values else other)),
    }[condition.relation]()
    broken = own[compared & ~holds.fillna(value=False).astype(bool)]
    most = evaluation.RESULT_FORMAT["partial_unexpected_count"]
    counts = {"element_count": int(compared.sum()), "unexpected_count": len(broken)}
    return SimpleNamespace(
        success=broken.empty, exception_info={}, result={**counts, "unexpected_rows": broken.head(most)}
    )
