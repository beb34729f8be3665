"""Replayed states, each beside the log it speaks of and what its batches add up to."""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa

from acktrail_expectations.batch_columns import batch_columns
from acktrail_expectations.frames.columns import frame_of, key_texts, terminal_counts
from acktrail_expectations.frames.home_partition import home_state_partitions
from acktrail_expectations.inputs.cluster_facts import ClusterFacts

__all__ = ["STATE_COLUMNS", "share_partition_states_frame"]

STATE_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "state_partition",
    "start_offset",
    "effective_start_offset",
    "end_offset",
    "delivery_complete_count",
    "acknowledged_records",
    "archived_records",
    "batches",
    "completeness",
)
"""The columns of ``SHARE_PARTITION_STATES`` that the frame is made of."""


def share_partition_states_frame(states: pa.Table, *, facts: ClusterFacts) -> pd.DataFrame:
    """One run's states with what bounds them.

    A run's states are replayed from records that were read between its two samples, so the log end of the later one
    is at or above everything they mention.

    Returns:
        ``STATE_COLUMNS`` and `log_start_offset`, `log_end_offset` (missing for a topic that is gone or may not be
        seen), `home_state_partition`, `delivery_count_limit`, `is_uninitialized`, `terminal_offsets` (acknowledged and
        archived offsets of the batches), `finished_records` (the same as the table's own columns say).
    """
    table = states.select(list(STATE_COLUMNS))
    frame = frame_of(table)
    limits = {group: facts.delivery_count_limit(group) for group in table["group_id"].unique().to_pylist()}
    derived = frame.assign(
        home_state_partition=home_state_partitions(key_texts(table), facts.state_partition_count),
        delivery_count_limit=frame["group_id"].map(limits).astype("Int64"),
        is_uninitialized=frame["start_offset"].isna(),
        terminal_offsets=terminal_counts(batch_columns(table["batches"]), frame["start_offset"]),
        finished_records=frame["acknowledged_records"] + frame["archived_records"],
    )
    return derived.merge(frame_of(facts.logs), how="left", on=["topic_id", "partition"], validate="many_to_one")
