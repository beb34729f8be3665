"""The suites of a run with the frames that they look at, in the order of the data's way, and their results.

Rules on state records are evaluated by executors, where the records are; all others in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from acktrail.connect.activity import doing
from acktrail.executors import Executors, JobStep, Results
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail_expectations.evaluation import NO_ROW, Label, SuiteCheck, checks_of, evaluate, not_evaluated
from acktrail_expectations.frames.table_frames import (
    export_ranges_frame,
    reconciliations_frame,
    share_partition_states_frame,
    state_partitions_frame,
)
from acktrail_expectations.results import RESULTS, QualityResult, ValidationSummary, merged, stored_result
from acktrail_expectations.run_data import RunData, UnvalidatedRecords

MATCHES_RAW_BYTES: Final = RULE_BY_ID["record_matches_raw_bytes"]
"""The decoded columns of a record equal its key and its value decoded again: for frames that compare bytes."""

_RECORDS: Final = "state_records"
_EVALUATE: Final = JobStep(name="evaluate the rules on state records", kinds={"results": RESULTS})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteFrame:
    """A suite, a frame for it (one piece of a table, or all of it), how people name a row, and why it has none."""

    suite: str
    checks: tuple[SuiteCheck, ...]
    frame: pd.DataFrame
    label: Label
    why_empty: str = ""

    def results(self) -> tuple[QualityResult, ...]:
        """One for each of the checks."""
        found = evaluate(self.suite, self.checks, self.frame, self.label)
        return tuple(replace(each, reason=self.why_empty) if each.reason == NO_ROW else each for each in found)


def share_partition(row: Mapping[str, Any]) -> str:
    """A share partition as people name it: group, topic and partition, by the topic's id where it has no name."""
    topic = row["topic"] if isinstance(row["topic"], str) else row["topic_id"]
    return f"{row['group_id']}/{topic}/{row['partition']}"


def _export_range(row: Mapping[str, Any]) -> str:
    return f"{row['state_partition']}/{row['begin']}-{row['end'] - 1}"


def _state_record(topics: Mapping[str, str], row: Mapping[str, Any]) -> str:
    """State partition and offset, and the share partition where the record names one. `topics`: names by id."""
    address = f"{row['state_partition']}/{row['offset']}"
    if not isinstance(row["group_id"], str):
        return address
    return f"{address} of {share_partition({**row, 'topic': topics.get(row['topic_id'])})}"


def suite_frames(run: RunData, now: datetime) -> Iterator[SuiteFrame]:
    """Every suite of a run; of the state records, which executors evaluate, a frame without rows."""

    def of(suite: str, frame: pd.DataFrame, label: Label, why_empty: str) -> SuiteFrame:
        doing(f"validating {suite}")
        return SuiteFrame(suite=suite, checks=checks_of(suite), frame=frame, label=label, why_empty=why_empty)

    observed = state_partitions_frame(
        run.observed, ends=run.exported_ends, partition_counts=run.since.partition_counts, now=now
    )
    not_seen = "the run did not observe the state topic"
    yield of("state_partitions", observed, lambda row: f"state partition {row['state_partition']}", not_seen)
    ranges = export_ranges_frame(run.ranges, since=run.since.ranges, run_id=run.run_id, stored=run.records.stored)
    yield of("export_ranges", ranges, _export_range, "nothing was exported since the last validation")
    nothing = "no state record came since the last validation"
    yield replace(_piece(run.records, pd.DataFrame()), why_empty=nothing)
    states = share_partition_states_frame(run.states, cluster=run.cluster)
    yield of("share_partition_states", states, share_partition, "the run replayed no share partition")
    verdicts = reconciliations_frame(run.reconciliations)
    yield of("reconciliations", verdicts, share_partition, "the run reconciled no share partition")


def record_frames(records: UnvalidatedRecords, partitions: Sequence[int]) -> Iterator[SuiteFrame]:
    """The records of some state partitions, piece by piece."""
    for frame in records.frames(partitions):
        yield _piece(records, frame)
        del frame


def _piece(records: UnvalidatedRecords, frame: pd.DataFrame) -> SuiteFrame:
    checks = tuple(c for c in checks_of(_RECORDS) if records.compares_bytes or c.rule is not MATCHES_RAW_BYTES)
    label = partial(_state_record, records.cluster.topics)
    return SuiteFrame(suite=_RECORDS, checks=checks, frame=frame, label=label)


def run_results(run: RunData, executors: Executors | None, now: datetime) -> tuple[QualityResult, ...]:
    """In the order of the data's way. `executors` evaluate the rules on state records, unless these are few."""
    results: list[QualityResult] = []
    for piece in suite_frames(run, now):
        results += piece.results()
        if piece.suite == _RECORDS:
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
        results = merged((*results, *piece.results()))
        del piece
    yield "results", pa.Table.from_pylist([result.row for result in results], schema=RESULTS)


def with_earlier_results(
    results: tuple[QualityResult, ...], known: ValidationSummary, data: RunData
) -> tuple[QualityResult, ...]:
    """State records are validated once: those of the run's earlier validation stay in its results. Raw bytes that
    matched then prove nothing about records that came since."""
    rules = {(result.suite, result.expectation) for result in results}
    earlier = [r for r in known.results if r.suite == _RECORDS and (r.suite, r.expectation) in rules]
    if data.why_bytes_not_compared is not None:
        earlier = [r for r in earlier if r.expectation != MATCHES_RAW_BYTES.id or r.success is False]
    return merged((*results, *earlier))
