"""Share partitions of a plan, each beside what its other columns say of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail_expectations.frames.columns import frame_of, where

__all__ = ["RESET_PLAN_COLUMNS", "reset_plan_frame"]

RESET_PLAN_COLUMNS = (
    "group_id",
    "topic",
    "topic_id",
    "partition",
    "log_start_offset",
    "log_end_offset",
    "wanted_offset",
    "target_offset",
    "clamp",
    "to_deliver",
    "delivered_again",
    "passed_again",
    "acknowledgements_forgotten",
    "archived_forgotten",
    "acknowledgements_known",
    "archived_known",
    "passed_acknowledged",
    "passed_archived",
    "skipped",
    "refused",
)
"""The columns of ``RESET_PLAN_PARTITIONS`` that the frame is made of."""


def reset_plan_frame(partitions: pa.Table, *, allow_skip: bool) -> pd.DataFrame:
    """The share partitions of one plan; `allow_skip`: its request allows that records are skipped.

    Returns:
        ``RESET_PLAN_COLUMNS`` and `sent_target` (missing where the share partition is refused), `unclamped_target` (of
        those that were not clamped), `has_target_or_refusal`, `unallowed_skip`, `offsets_to_deliver` (log end less
        target) and `sum_of_delivered_again` (what lies below the start offset, and what is finished in the state).
    """
    frame = frame_of(partitions.select(list(RESET_PLAN_COLUMNS)))
    refused = np.asarray(frame["refused"].fillna(value=False), dtype=np.bool_)
    sent = where(frame["target_offset"], ~refused)
    skips = np.asarray(frame["skipped"].fillna(value=0) > 0, dtype=np.bool_) & ~refused
    return frame.assign(
        sent_target=sent,
        unclamped_target=where(sent, frame["clamp"].isna()),
        has_target_or_refusal=np.asarray(frame["target_offset"].notna(), dtype=np.bool_) | refused,
        unallowed_skip=skips & (not allow_skip),
        offsets_to_deliver=frame["log_end_offset"] - sent,
        sum_of_delivered_again=frame["passed_again"]
        + _in_state(frame, "acknowledgements_forgotten", "acknowledgements_known", "passed_acknowledged")
        + _in_state(frame, "archived_forgotten", "archived_known", "passed_archived"),
    )


def _in_state(frame: pd.DataFrame, forgotten: str, known: str, passed: str) -> pd.Series:
    """The forgotten records that the state itself has; plans of version 1 counted no others."""
    return (frame[known] - frame[passed]).where(frame[known].notna(), frame[forgotten])
