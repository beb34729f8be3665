"""One share partition's observations, windows and judgements, as values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import STATUS_WINDOW
from acktrail.model.queue_status import QueueStatus
from acktrail.replay.queue_windows import CONTEXT, judge_windows, newest_windows

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KIND = STATUS_WINDOW.value_type


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObservation:
    """A share partition at one observation. Times in µs since the epoch; offsets, counts and times None: not known.

    `unfinished_records`: from the first unfinished offset to the log end.
    `recorded_at`: when the newest state record was written. `acknowledged`, `released`, `archived`: since the
    observation before.
    """

    observed_at: int
    recorded_at: int | None = None
    first_unfinished_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    unfinished_records: int | None = None
    state_epoch: int | None = None
    archiving_records: int | None = None
    acknowledged: int | None = None
    released: int | None = None
    archived: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A row of ``JUDGED``, with times in µs since the epoch."""

    status: QueueStatus
    since: int
    reason: str = ""
    unseen_at: int | None = None


def judge(previous: Judgement | None, window: Sequence[QueueObservation], **context: Any) -> Judgement:
    """The status after the newest of `window`; `previous`: the judgement at the observation before."""
    before = {} if previous is None else {"previous_status": previous.status.value, "previous_since": previous.since}
    windows = pa.array([[asdict(each) for each in window]], STATUS_WINDOW)
    (row,) = judge_windows(windows, pa.Table.from_pylist([{**context, **before}], schema=CONTEXT)).to_pylist()
    since, unseen_at = (None if at is None else _us(at) for at in (row["status_since"], row["unseen_at"]))
    assert since is not None
    return Judgement(status=QueueStatus(row["status"]), since=since, reason=row["reason"], unseen_at=unseen_at)


def next_window(before: Sequence[QueueObservation], newest: QueueObservation) -> list[QueueObservation]:
    """The observations that are kept."""
    held = pa.array([[asdict(each) for each in before]], STATUS_WINDOW)
    (row,) = newest_windows(held, pa.array([asdict(newest)], _KIND)).to_pylist()
    times = (
        {name: _us(value) if isinstance(value, dt.datetime) else value for name, value in each.items()} for each in row
    )
    return [QueueObservation(**each) for each in times]


def _us(at: dt.datetime) -> int:
    return (at - _EPOCH) // dt.timedelta(microseconds=1)
