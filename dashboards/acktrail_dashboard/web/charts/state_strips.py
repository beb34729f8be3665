"""State bands of share partitions: as they are, and of one share partition as they were at earlier reconciliations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow.compute as pc

from acktrail_dashboard.offset_bands import STRIP_WIDTH, BandKind, StateWindow, bands, state_window, strip_paths
from acktrail_dashboard.rows.run_tables import row_key
from acktrail_dashboard.summary_types import PartitionKey
from acktrail_dashboard.web.web_page import Visit

_HELD: Final = ("group_id", "topic_id", "partition", "held", "start_offset", "batches", "next_offset")
_STATE: Final = (
    "run_id",
    "observed_at",
    "group_id",
    "topic_id",
    "partition",
    "start_offset",
    "batches",
    "completeness",
)
_PAST: Final = 24
"""Earlier states that are drawn."""


def windows_of_group(
    visit: Visit, group_id: str, log_starts: Mapping[PartitionKey, int | None]
) -> dict[PartitionKey, StateWindow]:
    """The present windows of a group's share partitions, as the history holds them; those not known are not there."""
    rows = visit.read("held_states", columns=_HELD, where=pc.field("group_id") == group_id).to_pylist()
    found = {}
    for row in rows:
        if row["next_offset"] is None and row["held"] == "state":
            window = state_window(row, is_complete=True, log_start=log_starts.get(row_key(row)))
            if window is not None:
                found[row_key(row)] = window
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStrip:
    """The bands of one share partition at one reconciliation, on a scale that several share. `has_moved`: its start
    offset is not the one before."""

    observed_at: datetime
    window: StateWindow
    paths: list[tuple[BandKind, str]]
    has_moved: bool


def past_strips(visit: Visit, key: PartitionKey) -> tuple[list[PastStrip], int]:
    """Bands at up to 24 reconciliations within the range of time, the oldest first, and how many offsets the width of
    all of them is. The x of a picture is offset minus start offset."""
    runs = _chosen_runs(visit)
    if not runs:
        return [], 0
    group_id, topic_id, partition = key
    of_run = reduce(or_, (pc.field("run_id") == run_id for run_id in runs))
    own = (pc.field("group_id") == group_id) & (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    rows = visit.read("share_partition_states", columns=_STATE, where=of_run & own).sort_by("observed_at").to_pylist()
    pairs = [(row["observed_at"], state_window(row, is_complete=_is_complete(row), log_start=None)) for row in rows]
    known = [(at, window) for at, window in pairs if window is not None]
    widest = max((window.end - window.start for _, window in known), default=0)
    return list(_strips(known, widest)), widest


def _strips(known: Iterable[tuple[datetime, StateWindow]], widest: int) -> Iterable[PastStrip]:
    before: int | None = None
    for at, window in known:
        width = max(1, STRIP_WIDTH * (window.end - window.start) // max(widest, 1))
        paths = strip_paths(bands(window), width) if window.end > window.start else []
        yield PastStrip(observed_at=at, window=window, paths=paths, has_moved=before != window.start)
        before = window.start


def _is_complete(row: Mapping[str, Any]) -> bool:
    return bool(row["completeness"] == "complete")


def _chosen_runs(visit: Visit) -> list[str]:
    """The ids of reconciliations within the range of time, evenly chosen, the newest among them."""
    rows = visit.read("run_totals", columns=("run_id", "observed_at"), where=visit.within("observed_at"))
    ids: list[str] = rows.sort_by([("observed_at", "descending")])["run_id"].to_pylist()
    stride = max(1, -(-len(ids) // _PAST))
    return ids[::stride]
