"""The suites of a run with the frames that they look at, in the order of the data's way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pandas as pd

from acktrail.connect.activity import doing
from acktrail_expectations.gx.suite_check import RowLabel, SuiteCheck
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.inputs.run_data import RunData
from acktrail_expectations.row_labels import EXPORT_RANGE, SHARE_PARTITION, STATE_PARTITION, state_record_label
from acktrail_expectations.suites.export_ranges import EXPORT_RANGE_CHECKS, export_ranges_frame
from acktrail_expectations.suites.reconciliations import RECONCILIATION_CHECKS, reconciliations_frame
from acktrail_expectations.suites.share_partition_states import (
    share_partition_state_checks,
    share_partition_states_frame,
)
from acktrail_expectations.suites.state_partitions import STATE_PARTITION_CHECKS, state_partitions_frame
from acktrail_expectations.suites.state_records import MATCHES_RAW_BYTES, StateRecordFrames, state_record_checks

NO_ROWS: Final = {
    "state_partitions": "the run did not observe the state topic",
    "export_ranges": "nothing was exported since the last validation",
    "state_records": "no state record came since the last validation",
    "share_partition_states": "the run replayed no share partition",
    "reconciliations": "the run reconciled no share partition",
}
"""Why a suite has no row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteFrame:
    """A suite, a frame for it (one piece of a table, or all of it), and how people name a row of it."""

    suite: str
    checks: tuple[SuiteCheck, ...]
    frame: pd.DataFrame
    subject: RowLabel


def suites_of(cluster: ObservedCluster, *, compares_bytes: bool = False) -> dict[str, tuple[SuiteCheck, ...]]:
    """The rules of every suite of a run, as they apply to the release and the group configurations of `cluster`."""
    of_bytes = (MATCHES_RAW_BYTES,) if compares_bytes else ()
    return {
        "state_partitions": STATE_PARTITION_CHECKS,
        "export_ranges": EXPORT_RANGE_CHECKS,
        "state_records": (*state_record_checks(cluster), *of_bytes),
        "share_partition_states": share_partition_state_checks(cluster),
        "reconciliations": RECONCILIATION_CHECKS,
    }


def suite_frames(run: RunData, now: datetime) -> Iterator[SuiteFrame]:
    """Every suite of a run. State records come in pieces: one without rows first, then each as it is read."""
    checks = suites_of(run.cluster, compares_bytes=run.why_bytes_not_compared is None)

    def of(suite: str, frame: pd.DataFrame, subject: RowLabel) -> SuiteFrame:
        return SuiteFrame(suite=suite, checks=checks[suite], frame=frame, subject=subject)

    doing("validating state_partitions")
    frame = state_partitions_frame(run.observed, exported=run.exported, now=now)
    yield of("state_partitions", frame, STATE_PARTITION)
    doing("validating export_ranges")
    frame = export_ranges_frame(run.ranges, since=run.since.ranges, run_id=run.run_id, stored=run.stored)
    yield of("export_ranges", frame, EXPORT_RANGE)
    label = state_record_label(run.cluster.topics)
    yield of("state_records", pd.DataFrame(), label)
    frames = StateRecordFrames(gaps=run.gaps, cluster=run.cluster, compares_bytes=run.why_bytes_not_compared is None)
    for number, records in enumerate(run.records, start=1):
        doing(f"validating state_records, part {number}")
        frame = frames.add(records, since=run.since.records)
        if len(frame):
            yield of("state_records", frame, label)
        del records, frame
        gc.collect()  # the engine's objects refer to each other, and to the frame: the next piece needs its place
    doing("validating share_partition_states")
    yield of("share_partition_states", share_partition_states_frame(run.states, cluster=run.cluster), SHARE_PARTITION)
    doing("validating reconciliations")
    yield of("reconciliations", reconciliations_frame(run.reconciliations), SHARE_PARTITION)
