"""The suites of a run with the frames that they look at, in the order of the data's way, and their results.

Rules on state records are evaluated by executors, where the records are; all others in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import pandas as pd
import pyarrow as pa

from acktrail.connect.activity import doing
from acktrail.executors import Executors, JobStep, Results
from acktrail_expectations.gx.suite_check import NO_ROW, RowLabel, SuiteCheck, evaluate, not_evaluated
from acktrail_expectations.inputs.run_data import RunData
from acktrail_expectations.inputs.unvalidated_records import UnvalidatedRecords
from acktrail_expectations.results import RESULTS, QualityResult, ValidationSummary, merged, stored_result
from acktrail_expectations.row_labels import (
    EXPORT_RANGE,
    SHARE_PARTITION,
    STATE_PARTITION,
    STATE_RECORD,
    state_record_label,
)
from acktrail_expectations.suites.export_ranges import EXPORT_RANGE_CHECKS, export_ranges_frame
from acktrail_expectations.suites.reconciliations import RECONCILIATION_CHECKS, reconciliations_frame
from acktrail_expectations.suites.share_partition_states import (
    SHARE_PARTITION_STATE_CHECKS,
    share_partition_states_frame,
)
from acktrail_expectations.suites.state_partitions import STATE_PARTITION_CHECKS, state_partitions_frame
from acktrail_expectations.suites.state_records import MATCHES_RAW_BYTES, STATE_RECORD_CHECKS

_EVALUATE: Final = JobStep(name="evaluate the rules on state records", kinds={"results": RESULTS})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteFrame:
    """A suite, a frame for it (one piece of a table, or all of it), how people name a row, and why it has none."""

    suite: str
    checks: tuple[SuiteCheck, ...]
    frame: pd.DataFrame
    subject: RowLabel
    why_empty: str = ""


def suites_of(*, compares_bytes: bool) -> dict[str, tuple[SuiteCheck, ...]]:
    """The rules of every suite of a run."""
    return {
        "state_partitions": STATE_PARTITION_CHECKS,
        "export_ranges": EXPORT_RANGE_CHECKS,
        "state_records": (*STATE_RECORD_CHECKS, MATCHES_RAW_BYTES) if compares_bytes else STATE_RECORD_CHECKS,
        "share_partition_states": SHARE_PARTITION_STATE_CHECKS,
        "reconciliations": RECONCILIATION_CHECKS,
    }


def suite_frames(run: RunData, now: datetime) -> Iterator[SuiteFrame]:
    """Every suite of a run; of the state records, which executors evaluate, a frame without rows."""
    checks = suites_of(compares_bytes=run.records.compares_bytes)

    def of(suite: str, frame: pd.DataFrame, subject: RowLabel, why_empty: str) -> SuiteFrame:
        doing(f"validating {suite}")
        return SuiteFrame(suite=suite, checks=checks[suite], frame=frame, subject=subject, why_empty=why_empty)

    observed = state_partitions_frame(run.observed, exported=run.exported, now=now)
    yield of("state_partitions", observed, STATE_PARTITION, "the run did not observe the state topic")
    ranges = export_ranges_frame(run.ranges, since=run.since.ranges, run_id=run.run_id, stored=run.records.stored)
    yield of("export_ranges", ranges, EXPORT_RANGE, "nothing was exported since the last validation")
    yield of("state_records", pd.DataFrame(), STATE_RECORD, "no state record came since the last validation")
    states = share_partition_states_frame(run.states, cluster=run.cluster)
    yield of("share_partition_states", states, SHARE_PARTITION, "the run replayed no share partition")
    verdicts = reconciliations_frame(run.reconciliations)
    yield of("reconciliations", verdicts, SHARE_PARTITION, "the run reconciled no share partition")


def record_frames(records: UnvalidatedRecords, partitions: Sequence[int]) -> Iterator[SuiteFrame]:
    """The records of some state partitions, piece by piece."""
    suite, label = "state_records", state_record_label(records.cluster.topics)
    checks = suites_of(compares_bytes=records.compares_bytes)[suite]
    for frame in records.frames(partitions):
        yield SuiteFrame(suite=suite, checks=checks, frame=frame, subject=label)
        del frame


def run_results(run: RunData, executors: Executors | None, now: datetime) -> tuple[QualityResult, ...]:
    """In the order of the data's way. `executors` evaluate the rules on state records, unless these are few."""
    results: list[QualityResult] = []
    for piece in suite_frames(run, now):
        found = evaluate(piece.suite, piece.checks, piece.frame, piece.subject)
        results += (replace(each, reason=piece.why_empty) if each.reason == NO_ROW else each for each in found)
        if piece.suite == "state_records":
            workers, shares = run.records.shares(executors)
            of_records = workers.run(_EVALUATE, shares, partial(_evaluated, run.records))["results"]
            results += map(stored_result, of_records.to_pylist())
            if run.why_bytes_not_compared is not None:
                results.append(not_evaluated(piece.suite, MATCHES_RAW_BYTES, run.why_bytes_not_compared))
    return merged(results)


def _evaluated(records: UnvalidatedRecords, partitions: Sequence[int]) -> Results:
    """Results of ``_EVALUATE`` for a share of the state partitions."""
    results: tuple[QualityResult, ...] = ()
    for piece in record_frames(records, partitions):
        results = merged((*results, *evaluate(piece.suite, piece.checks, piece.frame, piece.subject)))
        del piece
    yield "results", pa.Table.from_pylist([result.row for result in results], schema=RESULTS)


def with_earlier_results(
    results: tuple[QualityResult, ...], known: ValidationSummary, data: RunData
) -> tuple[QualityResult, ...]:
    """State records are validated once: those of the run's earlier validation stay in its results. Raw bytes that
    matched then prove nothing about records that came since."""
    rules = {(result.suite, result.expectation) for result in results}
    earlier = [r for r in known.results if r.suite == "state_records" and (r.suite, r.expectation) in rules]
    if data.why_bytes_not_compared is not None:
        earlier = [r for r in earlier if r.expectation != MATCHES_RAW_BYTES.rule or r.success is False]
    return merged((*results, *earlier))
