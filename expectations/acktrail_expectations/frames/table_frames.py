"""The frames of the tables that a run has rows of, each row beside what bounds it. What must hold of them: rules.toml.

* ``export_ranges``: each commit of the exporter beside the one before it on its state partition.
* ``share_partition_states``: replayed states, each beside its log and the sum of its batches. A run's states are
  replayed from records that were read between its two samples, so the log end of the later one is at or above
  everything they mention.
* ``reconciliations``: the verdicts; of a match, both sides.
* The state topic as a run observed it: one row a state partition, beside what was exported of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.log_positions import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.model.reconciliation import Verdict
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.replay.stored_offsets import StoredOffsets
from acktrail_expectations.frames.frame_columns import (
    ObservedCluster,
    batch_columns,
    delivery_count_limits,
    frame_of,
    home_state_partitions,
    known_true,
    previous,
    where,
)

_NOT_LOST: Final = (PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION)
_LOG_OFFSETS: Final = ("log_start_offset", "log_end_offset")


def export_ranges_frame(
    ranges: pa.Table, *, since: Mapping[int, int], run_id: str, stored: StoredOffsets
) -> pd.DataFrame:
    """The ranges of `run_id` and those that end at or above `since` (offset by state partition; absent: all).

    `ranges`: those to validate and, on each state partition, the one before them. `stored`: the records that are.

    Returns:
        The columns of ``EXPORT_RANGES`` and `begin`, `end` (the gap and the records together, one past the last),
        `expected_begin` (the end before; missing in a state partition's first range), `first_begin` (only in its first
        range), `after_gap` (one past the gap), `lost_first` (`gap_first`, except of what was pruned before the first
        export or is not kept), `span_records`, `accounted_records`, `stored_records` (missing where older than
        `addresses`), `first_state_topic_id`.
    """
    frame = frame_of(ranges)
    frame = frame.assign(
        begin=frame["gap_first"].fillna(frame["first_offset"]), end=frame["last_offset"].fillna(frame["gap_last"]) + 1
    )
    frame = frame.sort_values(["state_partition", "begin", "end"], ignore_index=True)
    partition = np.asarray(pd.factorize(frame["state_partition"])[0], dtype=np.int64)
    inverted = (frame["last_offset"] < frame["first_offset"]).fillna(value=False) | (
        frame["gap_last"] < frame["gap_first"]
    ).fillna(value=False)
    is_first = ~frame["state_partition"].duplicated() & ~frame["state_partition"].isin(list(since))
    whole = frame.assign(
        expected_begin=previous(frame["end"].mask(known_true(inverted)), partition),
        first_begin=where(frame["begin"], is_first),
        after_gap=frame["gap_last"] + 1,
        lost_first=frame["gap_first"].mask(known_true(frame["gap_reason"].isin(_NOT_LOST))),
        span_records=frame["last_offset"] - frame["first_offset"] + 1,
        accounted_records=frame["records_decoded"] + frame["records_quarantined"],
        stored_records=_stored(frame, stored),
        first_state_topic_id=frame["state_topic_id"].iloc[0] if len(frame) else pd.NA,
    )
    begin = whole["state_partition"].map(dict(since)).astype("Int64")
    return whole[~known_true(whole["end"] <= begin) | known_true(whole["run_id"] == run_id)].reset_index(drop=True)


def _stored(frame: pd.DataFrame, stored: StoredOffsets) -> pd.Series:
    """How many different offsets are stored of each range; missing where it is not known."""
    columns = (frame[name].tolist() for name in ("state_partition", "first_offset", "last_offset"))
    counts = [
        None if pd.isna(first) or pd.isna(last) else stored.count(partition, first, last)
        for partition, first, last in zip(*columns, strict=True)
    ]
    return pd.Series(counts, index=frame.index, dtype="Int64")


def share_partition_states_frame(states: pa.Table, *, cluster: ObservedCluster) -> pd.DataFrame:
    """One run's states with what bounds them.

    Returns:
        The columns of ``SHARE_PARTITION_STATES`` and `log_start_offset`, `log_end_offset` (missing for a topic that is
        gone or may not be seen), `home_state_partition`, `delivery_count_limit`, `is_uninitialized`,
        `is_archiving_allowed`, `batch_columns`,
        `completed_end` (start offset plus delivery complete count), `finished_records` (the sum of the table's own
        columns), `inflight_records` (delivered, and neither finished nor given up), `lock_limit` (missing where not
        known).
    """
    frame = frame_of(states)
    derived = frame.assign(
        home_state_partition=home_state_partitions(states, cluster.state_partition_count),
        is_uninitialized=frame["start_offset"].isna(),
        is_archiving_allowed=cluster.allows_archiving,
        inflight_records=frame["available_records"] + frame["archiving_records"].fillna(0),
        lock_limit=frame["group_id"].map(dict(cluster.lock_limits)).astype("Int64"),
        completed_end=frame["start_offset"] + frame["delivery_complete_count"],
        finished_records=frame["acknowledged_records"] + frame["archived_records"],
        delivery_count_limit=delivery_count_limits(frame["group_id"], cluster),
    )
    logs = frame_of(cluster.logs)
    whole = derived.merge(logs, how="left", on=["topic_id", "partition"], validate="many_to_one")
    return whole.assign(**batch_columns(whole))


def reconciliations_frame(reconciliations: pa.Table) -> pd.DataFrame:
    """One run's reconciliations.

    Returns:
        The columns of ``RECONCILIATIONS`` and, missing unless the verdict is a match of values that did not move:
        `agreed_start_offset` (described), `agreed_lag` (described, where the log did not grow either).
    """
    frame = frame_of(reconciliations)
    moved = np.asarray(frame["moved"].fillna(value=True), dtype=np.bool_)
    agreed = known_true(frame["verdict"] == Verdict.MATCH.value) & ~moved
    still = known_true(frame["log_end_offset_before"] == frame["log_end_offset_after"])
    return frame.assign(
        agreed_start_offset=where(frame["described_start_offset_after"], agreed),
        agreed_lag=where(frame["described_lag_after"], agreed & still),
    )


def state_topic_observed(observed: pa.Table) -> dict[str, int]:
    """The number of partitions of each state topic, by id, in one run's rows of ``OFFSET_OBSERVATIONS``; without those
    topics that have a row without a partition: how many they have is not known."""
    own = _of_state_topic(observed)
    uncounted = {None, *own.filter(pc.is_null(own["partition"]))["topic_id"].to_pylist()}
    found = own.group_by("topic_id").aggregate([("partition", "count_distinct")]).to_pylist()
    return {row["topic_id"]: row["partition_count_distinct"] for row in found if row["topic_id"] not in uncounted}


def state_partitions_frame(
    observed: pa.Table, *, ends: Mapping[int, int], partition_counts: Mapping[str, int], now: datetime
) -> pd.DataFrame:
    """The state partitions that a run observed, beside what earlier runs left behind. `ends`: one past the last
    exported offset of each, as Kafka counts them. `partition_counts`: how many partitions each state topic (by id) had
    at its first validation.

    Returns:
        `state_partition`, `exported_end` and `log_end_before` (missing where the state partition was empty when the
        observation began), `observation_age_minutes` (from its last answer to `now`), `state_partition_count` and
        `first_state_partition_count` (missing at the first validation of the state topic).
    """
    own = _of_state_topic(observed)
    own = own.filter(pc.is_valid(own["partition"]))
    logs = frame_of(own.filter(pc.equal(own["phase"], "before")).select(["partition", *_LOG_OFFSETS]))
    rows = frame_of(own.select(["partition", "topic_id"])).drop_duplicates("partition").sort_values("partition")
    rows = rows.merge(logs.drop_duplicates("partition"), how="left", on="partition")
    has_records = known_true(rows["log_end_offset"] > rows["log_start_offset"].fillna(0))
    return pd.DataFrame(
        {
            "state_partition": rows["partition"],
            "exported_end": where(_mapped(rows["partition"], ends).fillna(0), has_records),
            "log_end_before": where(rows["log_end_offset"], has_records),
            "observation_age_minutes": pd.Series([_age(own, now)] * len(rows), dtype="Int64"),
            "state_partition_count": _mapped(rows["topic_id"], state_topic_observed(observed)),
            "first_state_partition_count": _mapped(rows["topic_id"], partition_counts),
        }
    )


def _mapped(series: pd.Series, numbers: Mapping[Any, int]) -> pd.Series:
    return series.map(dict(numbers)).astype("Int64")


def _of_state_topic(observed: pa.Table) -> pa.Table:
    return observed.filter(pc.and_(pc.is_null(observed["group_id"]), pc.equal(observed["topic"], STATE_TOPIC)))


def _age(observed: pa.Table, now: datetime) -> int | None:
    """Minutes from the newest of `observed` to `now`."""
    seen: datetime | None = pc.max(observed["observed_at"]).as_py()
    return None if seen is None else int((now - seen).total_seconds() // 60)
