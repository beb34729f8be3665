"""What must hold of ``export_ranges``: each commit of the exporter beside the one before it on its state partition.

Records that Kafka pruned before they were exported are lost, and the exporter records it: an error, since states
replayed after the next snapshots are right again. A hole that is not recorded is critical: then nothing shows what is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.connect.source_batches import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.replay.stored_offsets import StoredOffsets
from acktrail_expectations.gx.engine import core
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, rule_check
from acktrail_expectations.suites.frame_columns import frame_of, known_true, previous, where

RANGE_COLUMNS: Final = (
    "run_id", "state_topic_id", "state_partition", "first_offset", "last_offset", "records_read", "records_decoded",
    "records_quarantined", "log_start_offset", "log_end_offset", "gap_first", "gap_last", "gap_reason",
)  # fmt: skip
"""The columns of ``EXPORT_RANGES`` that the frame is made of."""


_NOT_LOST: Final = (PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION)
_FIRST: Final = "first range of a state partition"

EXPORT_RANGE_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("range_first_le_last", at_least("last_offset", "first_offset")),
    rule_check("gap_first_le_last", at_least("gap_last", "gap_first"), only_where="recorded gap"),
    rule_check("range_below_log_end", at_least("log_end_offset", "end")),
    rule_check("one_state_topic", equal("state_topic_id", "first_state_topic_id")),
    rule_check("export_contiguous", equal("begin", "expected_begin"), only_where="range that follows another"),
    rule_check("records_follow_gap", equal("first_offset", "after_gap"), only_where="records after a recorded gap"),
    rule_check("export_begins_at_log_start", at_least("log_start_offset", "first_begin"), only_where=_FIRST),
    rule_check("nothing_pruned_before_export", core.ExpectColumnValuesToBeNull(column="lost_first")),
    rule_check("records_accounted_for", equal("records_read", "accounted_records")),
    rule_check("records_stored", equal("records_read", "stored_records")),
    rule_check("range_dense", equal("records_read", "span_records")),
)
"""Rules on the frame below."""


def export_ranges_frame(
    ranges: pa.Table, *, since: Mapping[int, int], run_id: str | None, stored: StoredOffsets | None
) -> pd.DataFrame:
    """The ranges of `run_id` (None: no run's) and those that end at or above `since` (offset by state partition;
    absent: all).

    `ranges`: those to validate and, on each state partition, the one before them. `stored` None: it is not known which
    records are.

    Returns:
        ``RANGE_COLUMNS`` and `begin`, `end` (the gap and the records together, one past the last), `expected_begin`
        (the end before; missing in a state partition's first range), `first_begin` (only in its first range),
        `after_gap` (one past the gap), `lost_first` (`gap_first`, except of what was pruned before the first export
        or is not kept), `span_records`, `accounted_records`, `stored_records` (missing where older than `addresses`),
        `first_state_topic_id`.
    """
    frame = frame_of(ranges.select(list(RANGE_COLUMNS)))
    frame = frame.assign(
        begin=frame["gap_first"].fillna(frame["first_offset"]), end=frame["last_offset"].fillna(frame["gap_last"]) + 1
    )
    frame = frame.sort_values(["state_partition", "begin", "end"], ignore_index=True)
    partition = np.asarray(pd.factorize(frame["state_partition"])[0], dtype=np.int64)
    is_first = ~frame["state_partition"].duplicated() & ~frame["state_partition"].isin(list(since))
    whole = frame.assign(
        expected_begin=previous(frame["end"], partition),
        first_begin=where(frame["begin"], is_first),
        after_gap=frame["gap_last"] + 1,
        lost_first=frame["gap_first"].mask(known_true(frame["gap_reason"].isin(_NOT_LOST))),
        span_records=frame["last_offset"] - frame["first_offset"] + 1,
        accounted_records=frame["records_decoded"] + frame["records_quarantined"],
        stored_records=_stored(frame, stored),
        first_state_topic_id=frame["state_topic_id"].iloc[0] if len(frame) else pd.NA,
    )
    begin = whole["state_partition"].map(dict(since)).astype("Int64")
    is_own = known_true(whole["run_id"] == run_id) if run_id is not None else False
    return whole[~known_true(whole["end"] <= begin) | is_own].reset_index(drop=True)


def _stored(frame: pd.DataFrame, stored: StoredOffsets | None) -> pd.Series:
    """How many different offsets are stored of each range; missing where it is not known."""
    columns = (frame[name].tolist() for name in ("state_partition", "first_offset", "last_offset"))
    counts = [
        None if stored is None or pd.isna(first) or pd.isna(last) else stored.count(partition, first, last)
        for partition, first, last in zip(*columns, strict=True)
    ]
    return pd.Series(counts, index=frame.index, dtype="Int64")
