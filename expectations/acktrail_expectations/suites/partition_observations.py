"""What must hold of ``partition_observations``: each look at a topic beside the one before it.

A count that falls is critical: fences are log ends at two looks, and looks at two clusters prove nothing. A clock that
goes back is a warning: looks are in the order of their instants, and only a person knows what that order hides.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, is_true, rule_check
from acktrail_expectations.suites.frame_columns import combined_codes, frame_of, known_true, last_known, previous, where

OBSERVATION_COLUMNS: Final = (
    "cluster_id", "run_id", "observed_at", "topic_id", "topic", "partition", "partition_count", "leader_epoch",
    "epoch_end_offset", "log_end_offset",
)  # fmt: skip
"""The columns of ``PARTITION_OBSERVATIONS`` that the frames are made of."""

FUTURE: Final = dt.timedelta(minutes=5)
"""How far the clocks of the observer and of the validation may differ."""

_SECOND: Final = "topic that was observed before"
_KEY: Final = ["topic_id", "run_id"]

TOPIC_OBSERVATION_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("partition_count_not_falling", at_least("partition_count", "previous_count"), only_where=_SECOND),
    rule_check("observation_has_every_partition", equal("partitions", "partition_count")),
    rule_check("partition_observed_once", equal("rows_of_run", "partitions_of_run")),
    rule_check("observation_clock_not_back", is_true("is_in_order")),
)
"""Rules on `topic_observations_frame`."""

LEADER_EPOCH_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check(
        "partition_leader_epoch_not_back",
        at_least("leader_epoch", "previous_epoch"),
        only_where="partition that was observed before",
    ),
    rule_check(
        "epoch_end_ge_earlier_log_end",
        at_least("epoch_end_offset", "earlier_end"),
        only_where="partition that was observed under an earlier leader",
    ),
)
"""Rules on `leader_epochs_frame`."""


def topic_observations_frame(
    observations: pa.Table,
    *,
    run_id: str,
    since: dt.datetime,
    positions_at: dt.datetime | None,
    now: dt.datetime,
) -> pd.DataFrame:
    """The topics that `run_id` observed, and those that were observed after `since`.

    `observations`: those, and earlier ones that they are compared with. `positions_at`: the first reading of groups of
    `run_id`, which follows its observation of topics; None: it read none.

    Returns:
        `topic_id`, `topic`, `run_id`, `partition_count` and `previous_count` (missing in a topic's first observation),
        `partitions` (different ones), `rows_of_run` and `partitions_of_run`, `is_in_order`.
    """
    known = _known(observations)
    looks = known.group_by([*_KEY, "observed_at"], use_threads=False).aggregate(
        [("partition", "count"), ("partition", "count_distinct"), ("partition_count", "max"), ("topic", "max")]
    )
    names = [*_KEY, "observed_at", "rows", "partitions", "partition_count", "topic"]
    frame = _ordered(looks.rename_columns(names), ["topic_id", "observed_ms", "run_id"])
    of_run = known.group_by(_KEY, use_threads=False).aggregate(
        [("partition", "count"), ("partition", "count_distinct")]
    )
    sums = frame_of(of_run.rename_columns([*_KEY, "rows_of_run", "partitions_of_run"]))
    whole = frame.assign(previous_count=previous(frame["partition_count"], _codes(frame["topic_id"])))
    return _own(whole.merge(sums, how="left", on=_KEY), run_id, since).assign(
        is_in_order=lambda own: _in_order(own, run_id, since, positions_at, now)
    )


def leader_epochs_frame(observations: pa.Table, *, run_id: str, since: dt.datetime) -> pd.DataFrame:
    """The same rows as of `topic_observations_frame`, one a partition.

    Returns:
        `topic_id`, `topic`, `run_id`, `partition`, `leader_epoch` and `previous_epoch` (the newest known one of the
        observations before), `epoch_end_offset` and `earlier_end`: the newest log end that is known under the leader
        epoch before. Both are missing where there is none.
    """
    names = [*_KEY, "observed_at", "topic", "partition", "leader_epoch", "epoch_end_offset", "log_end_offset"]
    frame = _ordered(_known(observations).select(names), ["topic_id", "partition", "observed_ms"])
    chain = combined_codes(_codes(frame["topic_id"]), _codes(frame["partition"]))
    leader = frame["leader_epoch"]
    before = previous(last_known(leader, chain), chain)
    end = last_known(where(frame["log_end_offset"], leader.notna()), chain)
    at_change = where(previous(end, chain), known_true(leader > before))
    return _own(frame.assign(previous_epoch=before, earlier_end=last_known(at_change, chain)), run_id, since)


def _known(observations: pa.Table) -> pa.Table:
    """Without topics that could not be described."""
    named = pc.field("topic_id").is_valid() & pc.field("partition").is_valid()
    return observations.filter(named & pc.field("observed_at").is_valid())


def _ordered(rows: pa.Table, names: list[str]) -> pd.DataFrame:
    """As a frame in the order of `names`, with the instant as `observed_ms`."""
    return frame_of(with_ms(rows, "observed_at")).sort_values(names, kind="stable", ignore_index=True)


def with_ms(rows: pa.Table, *names: str) -> pa.Table:
    """Each of `names`, an instant that ends in ``_at``, as ms since the epoch in a column that ends in ``_ms``."""
    for name in names:
        at = rows.column_names.index(name)
        ms = pc.divide(rows[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)
        rows = rows.set_column(at, name.removesuffix("_at") + "_ms", ms)
    return rows


def epoch_ms(instant: dt.datetime) -> int:
    """Milliseconds since the epoch, rounded down as `with_ms` does."""
    return (instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _codes(series: pd.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(pd.factorize(series)[0], dtype=np.int64)


def _own(frame: pd.DataFrame, run_id: str, since: dt.datetime) -> pd.DataFrame:
    chosen = known_true(frame["observed_ms"] > epoch_ms(since)) | known_true(frame["run_id"] == run_id)
    return frame[chosen].reset_index(drop=True)


def _in_order(
    frame: pd.DataFrame, run_id: str, since: dt.datetime, positions_at: dt.datetime | None, now: dt.datetime
) -> pd.Series:
    """Whether each observation is neither in the future, nor before `since`, nor after what was read after it."""
    at, of_run = frame["observed_ms"], known_true(frame["run_id"] == run_id)
    in_order = (at <= epoch_ms(now + FUTURE)) & (at >= epoch_ms(since))
    if positions_at is not None:
        in_order &= (at <= epoch_ms(positions_at)) | ~of_run
    return in_order.astype("boolean")
