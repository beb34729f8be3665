"""What must hold of the state topic as a run observed it: one row a state partition, beside what was exported of it.

An export that is behind the observation is an error and no more: what is missing is recorded, and verdicts that depend
on it are unknown. A number of partitions that changed is critical: every share partition's hash names another state
partition then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.share_partition import STATE_TOPIC
from acktrail_expectations.gx.engine import core
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, rule_check
from acktrail_expectations.suites.frame_columns import frame_of, known_true, where

OBSERVED_COLUMNS: Final = (
    "phase", "observed_at", "group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset",
)  # fmt: skip
"""The columns of ``OFFSET_OBSERVATIONS`` that the frame is made of."""

_LOG_OFFSETS: Final = ("log_start_offset", "log_end_offset")

FRESH_MINUTES: Final = 60
"""How old the brokers' answers may be when they are validated."""

STATE_PARTITION_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check(
        "state_topic_partition_count_constant",
        equal("state_partition_count", "first_state_partition_count"),
        only_where="state topic that was validated before",
    ),
    rule_check(
        "export_complete", at_least("exported_end", "log_end_before"), only_where="state partition with records"
    ),
    rule_check(
        "export_fresh", core.ExpectColumnValuesToBeBetween(column="observation_age_minutes", max_value=FRESH_MINUTES)
    ),
)
"""Rules on the frame below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSoFar:
    """What earlier runs left behind. `ends`: one past the last exported offset of each state partition, as Kafka counts
    them. `partition_counts`: how many partitions each state topic (by id) had at its first validation."""

    ends: Mapping[int, int] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)


def state_topic_observed(observed: pa.Table) -> dict[str, int]:
    """The number of partitions of each state topic, by id, in one run's rows of ``OFFSET_OBSERVATIONS``."""
    own = _of_state_topic(observed)
    found = own.group_by("topic_id").aggregate([("partition", "count_distinct")]).to_pylist()
    return {row["topic_id"]: row["partition_count_distinct"] for row in found if row["topic_id"] is not None}


def state_partitions_frame(observed: pa.Table, *, exported: ExportedSoFar, now: datetime) -> pd.DataFrame:
    """The state partitions that a run observed.

    Returns:
        `state_partition`, `exported_end` and `log_end_before` (missing where the state partition was empty when the
        observation began), `observation_age_minutes` (from its last answer to `now`), `state_partition_count` and
        `first_state_partition_count` (missing at the first validation of the state topic).
    """
    own = _of_state_topic(observed)
    logs = frame_of(own.filter(pc.equal(own["phase"], "before")).select(["partition", *_LOG_OFFSETS]))
    rows = frame_of(own.select(["partition", "topic_id"])).drop_duplicates("partition").sort_values("partition")
    rows = rows.merge(logs.drop_duplicates("partition"), how="left", on="partition")
    has_records = known_true(rows["log_end_offset"] > rows["log_start_offset"])
    return pd.DataFrame(
        {
            "state_partition": rows["partition"],
            "exported_end": where(_mapped(rows["partition"], exported.ends).fillna(0), has_records),
            "log_end_before": where(rows["log_end_offset"], has_records),
            "observation_age_minutes": pd.Series([_age(own, now)] * len(rows), dtype="Int64"),
            "state_partition_count": _mapped(rows["topic_id"], state_topic_observed(observed)),
            "first_state_partition_count": _mapped(rows["topic_id"], exported.partition_counts),
        }
    )


def _mapped(series: pd.Series, numbers: Mapping[Any, int]) -> pd.Series:
    return series.map(dict(numbers)).astype("Int64")


def _of_state_topic(observed: pa.Table) -> pa.Table:
    own = observed.select(list(OBSERVED_COLUMNS))
    return own.filter(pc.and_(pc.is_null(own["group_id"]), pc.equal(own["topic"], STATE_TOPIC)))


def _age(observed: pa.Table, now: datetime) -> int | None:
    """Minutes from the newest of `observed` to `now`."""
    seen: datetime | None = pc.max(observed["observed_at"]).as_py()
    return None if seen is None else int((now - seen).total_seconds() // 60)
