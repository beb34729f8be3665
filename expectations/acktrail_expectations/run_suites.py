"""Every suite on its rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from acktrail.connect.activity import doing
from acktrail_expectations.gx.evaluation import NO_ROW, RowLabel, evaluate, not_evaluated
from acktrail_expectations.inputs.run_data import RunData
from acktrail_expectations.results import QualityResult, merged
from acktrail_expectations.suites.export_ranges import EXPORT_RANGE_CHECKS, export_ranges_frame
from acktrail_expectations.suites.reconciliations import RECONCILIATION_CHECKS, reconciliations_frame
from acktrail_expectations.suites.share_partition_states import (
    share_partition_state_checks,
    share_partition_states_frame,
)
from acktrail_expectations.suites.state_records import MATCHES_RAW_BYTES, StateRecordFrames, state_record_checks


def run_suites(run: RunData) -> tuple[QualityResult, ...]:
    """The results of all four suites, in the order of the data's way."""
    return tuple(
        replace(result, reason=_NO_ROWS[result.suite]) if result.reason == NO_ROW else result
        for result in merged((*_ranges(run), *_records(run), *_states(run), *_reconciliations(run)))
    )


_NO_ROWS: Final = {
    "export_ranges": "nothing was exported since the last validation",
    "state_records": "no state record came since the last validation",
    "share_partition_states": "the run replayed no share partition",
    "reconciliations": "the run reconciled no share partition",
}
"""Why a suite has no row."""


def _ranges(run: RunData) -> Iterator[QualityResult]:
    doing("validating export_ranges")
    frame = export_ranges_frame(run.ranges, since=run.since.ranges, run_id=run.run_id, stored=run.stored)
    yield from evaluate("export_ranges", EXPORT_RANGE_CHECKS, frame, EXPORT_RANGE)


def _records(run: RunData) -> Iterator[QualityResult]:
    checks = state_record_checks(run.cluster)
    if run.why_bytes_not_compared is None:
        checks = (*checks, MATCHES_RAW_BYTES)
    yield from evaluate("state_records", checks, pd.DataFrame(), STATE_RECORD)
    if run.why_bytes_not_compared is not None:
        yield not_evaluated("state_records", MATCHES_RAW_BYTES, run.why_bytes_not_compared)
    frames = StateRecordFrames(gaps=run.gaps, cluster=run.cluster, compares_bytes=run.why_bytes_not_compared is None)
    for number, records in enumerate(run.records, start=1):
        doing(f"validating state_records, part {number}")
        frame = frames.add(records, since=run.since.records)
        if len(frame):
            yield from evaluate("state_records", checks, frame, STATE_RECORD)
        del records, frame
        gc.collect()  # the engine's objects refer to each other, and to the frame: the next piece needs its place


def _states(run: RunData) -> Iterator[QualityResult]:
    doing("validating share_partition_states")
    frame = share_partition_states_frame(run.states, cluster=run.cluster)
    yield from evaluate("share_partition_states", share_partition_state_checks(run.cluster), frame, SHARE_PARTITION)


def _reconciliations(run: RunData) -> Iterator[QualityResult]:
    doing("validating reconciliations")
    frame = reconciliations_frame(run.reconciliations)
    yield from evaluate("reconciliations", RECONCILIATION_CHECKS, frame, SHARE_PARTITION)


def _share_partition(row: Mapping[str, Any]) -> str:
    topic = row["topic"] if isinstance(row["topic"], str) else row["topic_id"]
    return f"{row['group_id']}/{topic}/{row['partition']}"


STATE_RECORD: Final = RowLabel(("state_partition", "offset"), lambda row: f"{row['state_partition']}/{row['offset']}")
"""``state partition/offset`` of a state record."""

EXPORT_RANGE: Final = RowLabel(
    ("state_partition", "begin", "end"), lambda row: f"{row['state_partition']}/{row['begin']}-{row['end'] - 1}"
)
"""``state partition/first-last`` of an exported range with its gap."""

SHARE_PARTITION: Final = RowLabel(("group_id", "topic_id", "topic", "partition"), _share_partition)
"""``group/topic/partition``, the topic by its id where its name is not known."""
