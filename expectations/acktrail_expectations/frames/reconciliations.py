"""Verdicts, each beside what it says is the same."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.model.reconciliation import Verdict
from acktrail_expectations.frames.columns import frame_of, where

__all__ = ["RECONCILIATION_COLUMNS", "reconciliations_frame"]

RECONCILIATION_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "verdict",
    "reason",
    "moved",
    "durable_start_offset",
    "durable_lag",
    "described_start_offset_after",
    "described_lag_after",
    "log_end_offset_before",
    "log_end_offset_after",
)
"""The columns of ``RECONCILIATIONS`` that the frame is made of."""


def reconciliations_frame(reconciliations: pa.Table) -> pd.DataFrame:
    """One run's reconciliations.

    Returns:
        ``RECONCILIATION_COLUMNS`` and, missing unless the verdict is a match of values that did not move:
        `agreed_start_offset` (described), `agreed_lag` (described, where the log did not grow either).
    """
    frame = frame_of(reconciliations.select(list(RECONCILIATION_COLUMNS)))
    moved = np.asarray(frame["moved"].fillna(value=True), dtype=np.bool_)
    agreed = np.asarray((frame["verdict"] == Verdict.MATCH.value).fillna(value=False), dtype=np.bool_) & ~moved
    still = frame["log_end_offset_before"] == frame["log_end_offset_after"]
    return frame.assign(
        agreed_start_offset=where(frame["described_start_offset_after"], agreed),
        agreed_lag=where(frame["described_lag_after"], agreed & np.asarray(still.fillna(value=False), dtype=np.bool_)),
    )
