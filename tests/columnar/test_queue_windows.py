"""Two engines of statuses agree: the model, one window at a time, and columns for all of them at once."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from acktrail.columnar.queue_windows import judge_windows, newest_windows
from acktrail.columnar.schemas.schema_types import INSTANT
from acktrail.columnar.schemas.status_schemas import STATUS_WINDOW
from acktrail.model.queue_rules import WINDOW, Judgement, QueueObservation, judge
from acktrail.model.queue_status import QueueStatus

_SMALL = st.integers(0, 4)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@st.composite
def observations(draw: st.DrawFn, at: int) -> QueueObservation:
    """One with few different numbers, so that all rules apply to some windows; mostly known."""

    def number(most: int = 6) -> int | None:
        return None if draw(st.integers(0, 14)) == 0 else draw(st.integers(0, most))

    counts = [number(2), number(2), number(2)]
    return QueueObservation(
        observed_at=at,
        first_unfinished_offset=number(),
        log_start_offset=number(),
        log_end_offset=number(9),
        unfinished_records=number(3),
        state_epoch=number(2),
        archiving_records=number(1),
        acknowledged=counts[0],
        released=counts[1],
        archived=counts[2],
    )


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    length = draw(st.integers(1, WINDOW))
    still = draw(st.booleans())
    window = [draw(observations(1_000 * number)) for number in range(length)]
    if still:  # nothing but one column changes
        name = draw(
            st.sampled_from(
                ["log_end_offset", "unfinished_records", "archiving_records", "released", "log_start_offset"]
            )
        )
        window = [
            QueueObservation(**{**asdict(window[0]), "observed_at": each.observed_at, name: asdict(each)[name]})
            for each in window
        ]
    status = draw(st.none() | st.sampled_from(list(QueueStatus)))
    return {
        "previous": None if status is None else Judgement(status=status, since=7, reason=""),
        "window": window,
        "completeness": draw(st.sampled_from(["complete", "complete", "complete", "gap", None])),
        "members": draw(st.none() | st.integers(0, 2)),
    }


def window_array(windows: list[list[QueueObservation]]) -> pa.Array:
    return pa.array([[asdict(each) for each in window] for window in windows], STATUS_WINDOW)


@given(st.lists(cases(), max_size=12))
@example([])
def test_columns_judge_as_the_model_does(rows: list[dict[str, Any]]) -> None:
    """Status, since when and the words of the reason are the same for every window."""
    before = [row["previous"] for row in rows]
    judged = judge_windows(
        window_array([row["window"] for row in rows]),
        previous_status=pa.array([None if p is None else p.status.value for p in before], pa.string()),
        previous_since=pa.array([None if p is None else p.since for p in before], pa.int64()).cast(INSTANT),
        completeness=pa.array([row["completeness"] for row in rows], pa.string()),
        members=pa.array([row["members"] for row in rows], pa.int32()),
    )
    for row, found in zip(rows, judged.to_pylist(), strict=True):
        expected = judge(row["previous"], row["window"], completeness=row["completeness"], members=row["members"])
        since = (found["status_since"] - _EPOCH) // dt.timedelta(microseconds=1)
        assert (found["status"], since, found["reason"]) == (expected.status, expected.since, expected.reason)


@given(st.lists(st.none() | st.integers(0, WINDOW), max_size=6))
def test_a_window_keeps_the_newest_observations(lengths: list[int | None]) -> None:
    """The newest observation comes last, and of more than ten the oldest is dropped."""
    before = [None if n is None else [QueueObservation(observed_at=at) for at in range(n)] for n in lengths]
    held = pa.array([None if w is None else [asdict(each) for each in w] for w in before], STATUS_WINDOW)
    newest = pa.array([{"observed_at": 99}] * len(lengths), STATUS_WINDOW.value_type)
    found = newest_windows(held, newest).to_pylist()
    for own, window in zip(before, found, strict=True):
        times = [(each["observed_at"] - _EPOCH) // dt.timedelta(microseconds=1) for each in window]
        assert times == [*(each.observed_at for each in own or ()), 99][-WINDOW:]
