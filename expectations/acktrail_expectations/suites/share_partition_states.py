"""What must hold of ``share_partition_states``: replayed states, each beside its log and the sum of its batches.

`start <= end` holds by construction, since the end is derived; the rules with content compare with the log. A start
offset below the log start is legal (retention went ahead, the next load puts it right): a warning. A start offset or a
batch beyond the log end is critical: a reset beyond the end, or a log that was truncated or replaced; what lies in
between is never delivered.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa

from acktrail.model.reconciliation_input import Completeness
from acktrail_expectations.batch_columns import record_batches
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, critical, equal, error, none_of, unique, warning
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.suites.batches import batch_checks, no_batches
from acktrail_expectations.suites.frame_columns import frame_of, key_texts, terminal_offset_counts
from acktrail_expectations.suites.home_partition import home_state_partitions

STATE_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "state_partition", "start_offset", "effective_start_offset",
    "end_offset", "delivery_complete_count", "acknowledged_records", "archived_records", "batches", "completeness",
)  # fmt: skip
"""The columns of ``SHARE_PARTITION_STATES`` that the frame is made of."""


def share_partition_state_checks(cluster: ObservedCluster) -> tuple[SuiteCheck, ...]:
    """Rules on the frame below."""
    effective = "effective start offset"
    return (
        critical("share_partition_once", unique("group_id", "topic_id", "partition")),
        error("key_on_its_state_partition", equal("state_partition", "home_state_partition")),
        *batch_checks(cluster),
        critical("batches_below_log_end", no_batches("ending_at_or_above", "log_end_offset")),
        critical("start_offset_le_end_offset", at_least("end_offset", "start_offset")),
        critical("start_offset_le_log_end", at_least("log_end_offset", "start_offset")),
        critical("end_offset_le_log_end", at_least("log_end_offset", "end_offset")),
        warning("start_offset_ge_log_start", at_least("start_offset", "log_start_offset")),
        error(
            "effective_start_ge_start_offset", at_least("effective_start_offset", "start_offset"), only_where=effective
        ),
        error("effective_start_le_end_offset", at_least("end_offset", "effective_start_offset"), only_where=effective),
        error("finished_records_match_batches", equal("finished_records", "terminal_offsets")),
        warning(
            "delivery_complete_count_covers",
            at_least("delivery_complete_count", "terminal_offsets"),
            only_where="delivery complete count",
        ),
        error("state_reliable", none_of("completeness", Completeness.GAP.value, Completeness.UNREADABLE.value)),
        warning("state_has_snapshot", none_of("completeness", Completeness.NO_SNAPSHOT.value)),
    )


def share_partition_states_frame(states: pa.Table, *, cluster: ObservedCluster) -> pd.DataFrame:
    """One run's states with what bounds them.

    A run's states are replayed from records that were read between its two samples, so the log end of the later one
    is at or above everything they mention.

    Returns:
        ``STATE_COLUMNS`` and `log_start_offset`, `log_end_offset` (missing for a topic that is gone or may not be
        seen), `home_state_partition`, `delivery_count_limit`, `is_uninitialized`, `terminal_offsets` (acknowledged and
        archived offsets of the batches), `finished_records` (the sum of the table's own columns).
    """
    table = states.select(list(STATE_COLUMNS))
    frame = frame_of(table)
    limits = {group: cluster.delivery_count_limit(group) for group in table["group_id"].unique().to_pylist()}
    derived = frame.assign(
        home_state_partition=home_state_partitions(key_texts(table), cluster.state_partition_count),
        delivery_count_limit=frame["group_id"].map(limits).astype("Int64"),
        is_uninitialized=frame["start_offset"].isna(),
        terminal_offsets=terminal_offset_counts(record_batches(table["batches"]), frame["start_offset"]),
        finished_records=frame["acknowledged_records"] + frame["archived_records"],
    )
    return derived.merge(frame_of(cluster.logs), how="left", on=["topic_id", "partition"], validate="many_to_one")
