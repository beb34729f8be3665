"""The newest result of every share partition of a plan."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.group_changes.verification.partition_outcome import Status
from acktrail_expectations.frames.columns import frame_of, where

__all__ = ["RESET_RESULT_COLUMNS", "reset_result_frame"]

RESET_RESULT_COLUMNS: Final = (
    "attempt",
    "group_id",
    "topic",
    "topic_id",
    "partition",
    "target_offset",
    "status",
    "start_offset_after",
    "described_start_offset",
    "state_epoch_before",
    "state_epoch_after",
    "evidence_offset",
    "verified_at",
)
"""The columns of ``RESET_EXECUTIONS`` that the frame is made of."""

_DONE: Final = [status.value for status in Status if status.is_ok]


def reset_result_frame(executions: pa.Table) -> pd.DataFrame:
    """The rows of one plan, the newest of each share partition: a later attempt leaves out what an earlier one did.

    Returns:
        ``RESET_RESULT_COLUMNS`` and `is_settled`, `is_done`, `has_evidence` (a state record shows it, or nothing was to
        be shown), `done_start_offset` and `done_described_start_offset` (missing where it is not done).
    """
    rows = frame_of(executions.select(list(RESET_RESULT_COLUMNS)))
    ordered = rows.sort_values(["attempt", "verified_at"], kind="stable")
    frame = ordered.drop_duplicates(["group_id", "topic", "partition"], keep="last").reset_index(drop=True)
    done = np.asarray(frame["status"].isin(_DONE), dtype=np.bool_)
    by_record = done & np.asarray(frame["status"] != Status.OK_BY_DESCRIPTION.value, dtype=np.bool_)
    return frame.assign(
        is_settled=np.asarray(frame["status"] != Status.UNKNOWN.value, dtype=np.bool_),
        is_done=done,
        has_evidence=~by_record | np.asarray(frame["evidence_offset"].notna(), dtype=np.bool_),
        done_start_offset=where(frame["start_offset_after"], done),
        done_described_start_offset=where(frame["described_start_offset"], done),
    )
