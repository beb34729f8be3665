"""What bounds snapshots, and the updates between them: how many there may be, and which snapshots a broker writes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from acktrail_expectations.suites.frame_columns import Codes, combined_codes, known_true, last_known, previous, where

UPDATES_BEFORE: Final = "updates_before"
COMPLETED_BEFORE: Final = "completed_before"
KEPT_NUMBERS: Final = (UPDATES_BEFORE, COMPLETED_BEFORE)
"""Columns of the rows that are kept between two pieces of a log: updates since the snapshot, with the row itself, and
the newest known number of completed offsets."""


def updates_since_snapshot(frame: pd.DataFrame, kind: pd.Series, chain: Codes) -> pd.Series:
    """How many updates there are from the newest snapshot (or tombstone) of the row's chain up to and with the row.

    Missing where the chain begins without one, and after a record that could not be read: it may have been one.
    `frame` has ``UPDATES_BEFORE`` for the first row of a chain that continues an earlier piece.
    """
    begins = kind.isin(["snapshot", "tombstone"]).to_numpy(dtype=np.bool_)
    is_update = known_true(kind == "update").astype(np.int64)
    marks = pd.Series((begins | kind.isna().to_numpy(dtype=np.bool_)).astype(np.int64))
    stretch = combined_codes(chain, marks.groupby(chain).cumsum().to_numpy(dtype=np.int64))
    counted = pd.Series(is_update).groupby(stretch).cumsum().astype("Int64")
    base = (frame[UPDATES_BEFORE] - is_update).mask(begins, 0)
    return counted + base.groupby(stretch).transform("first")


def snapshot_bounds(
    frame: pd.DataFrame, kind: pd.Series, chain: Codes, life: Codes
) -> tuple[dict[str, pd.Series], dict[str, pd.Series]]:
    """What bounds each row, and what is in force after it.

    Returns:
        `updates_since_snapshot` (updates only); `kept_create_timestamp_ms` (snapshots that were not created when they
        were written: the create timestamp of the snapshot before, which a copy keeps).
    """
    updates = updates_since_snapshot(frame, kind, chain)
    created = last_known(frame["create_timestamp_ms"], life)
    is_copy = known_true(frame["create_timestamp_ms"] != frame["write_timestamp_ms"])
    bounds = {
        "updates_since_snapshot": where(updates, known_true(kind == "update")),
        "kept_create_timestamp_ms": where(previous(created, life), is_copy & known_true(kind == "snapshot")),
    }
    return bounds, {UPDATES_BEFORE: updates, "create_timestamp_ms": created}
