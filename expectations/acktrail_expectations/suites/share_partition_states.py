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

from acktrail.model.reconciliation import Completeness
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, none_of, rule_check, unique
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.suites.batches import COVERS_FINISHED, batch_checks, batch_columns, delivery_count_limits
from acktrail_expectations.suites.frame_columns import frame_of, home_state_partitions

STATE_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "state_partition", "start_offset", "first_unfinished_offset",
    "end_offset", "delivery_complete_count", "available_records", "acknowledged_records", "archiving_records",
    "archived_records", "batches", "completeness",
)  # fmt: skip
"""The columns of ``SHARE_PARTITION_STATES`` that the frame is made of."""


_EFFECTIVE: Final = "first unfinished offset"

SHARE_PARTITION_STATE_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("share_partition_once", unique("group_id", "topic_id", "partition")),
    rule_check("key_on_its_state_partition", equal("state_partition", "home_state_partition")),
    *batch_checks(),
    rule_check("start_offset_le_end_offset", at_least("end_offset", "start_offset")),
    rule_check("start_offset_le_log_end", at_least("log_end_offset", "start_offset")),
    rule_check("end_offset_le_log_end", at_least("log_end_offset", "end_offset")),
    rule_check("start_offset_ge_log_start", at_least("start_offset", "log_start_offset")),
    rule_check(
        "first_unfinished_ge_start_offset", at_least("first_unfinished_offset", "start_offset"), only_where=_EFFECTIVE
    ),
    rule_check(
        "first_unfinished_le_end_offset", at_least("end_offset", "first_unfinished_offset"), only_where=_EFFECTIVE
    ),
    rule_check("finished_records_match_batches", equal("finished_records", "terminal_offsets")),
    COVERS_FINISHED,
    rule_check("inflight_within_lock_limit", at_least("lock_limit", "inflight_records")),
    rule_check("terminal_prefix_absorbed", at_least("start_offset", "first_unfinished_offset")),
    rule_check("state_reliable", none_of("completeness", Completeness.GAP.value, Completeness.UNREADABLE.value)),
    rule_check("state_has_snapshot", none_of("completeness", Completeness.NO_SNAPSHOT.value)),
)
"""Rules on the frame below."""


def share_partition_states_frame(states: pa.Table, *, cluster: ObservedCluster) -> pd.DataFrame:
    """One run's states with what bounds them.

    A run's states are replayed from records that were read between its two samples, so the log end of the later one
    is at or above everything they mention.

    Returns:
        ``STATE_COLUMNS`` and `log_start_offset`, `log_end_offset` (missing for a topic that is gone or may not be
        seen), `home_state_partition`, `delivery_count_limit`, `is_uninitialized`, `batch_columns`,
        `finished_records` (the sum of the table's own columns), `inflight_records` (delivered, and neither finished nor
        given up), `lock_limit` (missing where not known).
    """
    table = states.select(list(STATE_COLUMNS))
    frame = frame_of(table)
    derived = frame.assign(
        home_state_partition=home_state_partitions(table, cluster.state_partition_count),
        is_uninitialized=frame["start_offset"].isna(),
        inflight_records=frame["available_records"] + frame["archiving_records"].fillna(0),
        lock_limit=frame["group_id"].map(dict(cluster.lock_limits)).astype("Int64"),
        finished_records=frame["acknowledged_records"] + frame["archived_records"],
        delivery_count_limit=delivery_count_limits(frame["group_id"], cluster),
    )
    logs = frame_of(cluster.logs)
    whole = derived.merge(logs, how="left", on=["topic_id", "partition"], validate="many_to_one")
    return whole.assign(**batch_columns(whole, cluster))
