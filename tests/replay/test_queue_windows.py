"""Two engines of statuses agree: the model, one window at a time, and columns for all of them at once."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from definitions.queue_rules import Judgement, judge
from definitions.queue_window import QueueContext, QueueObservation, next_window
from hypothesis import example, given
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import STATUS_WINDOW
from acktrail.model.queue_status import LONGEST, STATUS_TABLE, WINDOW, QueueStatus, Urgency
from acktrail.model.reconciliation import Verdict
from acktrail.replay.queue_windows import CONTEXT, judge_windows, newest_windows

_SMALL = st.integers(0, 4)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)


@st.composite
def observations(draw: st.DrawFn, at: int) -> QueueObservation:
    """One with few different numbers, so that all rules apply to some windows; mostly known."""

    def number(most: int = 6) -> int | None:
        return None if draw(st.integers(0, 14)) == 0 else draw(st.integers(0, most))

    counts = [number(2), number(2), number(2)]
    return QueueObservation(
        observed_at=at,
        recorded_at=draw(st.none() | st.integers(0, at)),
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
    length = draw(st.integers(1, LONGEST))
    every = draw(st.sampled_from([1_000, WINDOW // 4, WINDOW]))
    still = draw(st.booleans())
    window = [draw(observations(every * (1 + number))) for number in range(length)]
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
    newest = window[-1].observed_at
    return {
        "previous": None if status is None else Judgement(status=status, since=7, reason=""),
        "window": window,
        "context": QueueContext(
            completeness=draw(st.sampled_from(["complete", "complete", "complete", "gap", None])),
            verdict=draw(st.sampled_from(["match", "match", "match", *Verdict, None])),
            verdict_reason=draw(st.sampled_from(["so it is", None])),
            critical_finding=draw(st.sampled_from([None, None, None, "past_log_end: so it is"])),
            members=draw(st.none() | st.integers(0, 2)),
            first_look_at=window[0].observed_at,
            no_members_since=draw(st.sampled_from([None, window[0].observed_at, newest])),
            lost_records=draw(st.sampled_from([None, 0, 0, 3])),
            archived_seen=draw(st.none() | st.integers(0, 9)),
            unseen_at=draw(st.none() | st.integers(0, newest)),
        ),
    }


def window_array(windows: list[list[QueueObservation]]) -> pa.Array:
    return pa.array([[asdict(each) for each in window] for window in windows], STATUS_WINDOW)


@given(st.lists(cases(), max_size=12))
@example([])
def test_columns_judge_as_the_model_does(rows: list[dict[str, Any]]) -> None:
    """Status, since when, the words of the reason and what is unseen are the same for every window."""
    given_rows = [
        {
            **asdict(row["context"]),
            "previous_status": None if row["previous"] is None else row["previous"].status.value,
            "previous_since": None if row["previous"] is None else row["previous"].since,
        }
        for row in rows
    ]
    judged = judge_windows(
        window_array([row["window"] for row in rows]), pa.Table.from_pylist(given_rows, schema=CONTEXT)
    )
    for row, found in zip(rows, judged.to_pylist(), strict=True):
        expected = judge(row["previous"], row["window"], row["context"])
        times = [None if at is None else (at - _EPOCH) // _US for at in (found["status_since"], found["unseen_at"])]
        assert (found["status"], times, found["reason"]) == (
            expected.status,
            [expected.since, expected.unseen_at],
            expected.reason,
        )


@given(cases())
def test_a_status_never_contradicts_a_critical_finding_or_a_verdict(row: dict[str, Any]) -> None:
    """With a critical finding the status says it, in its words; where the verdict is no match nothing is called well,
    new or a reset."""
    context = row["context"]
    found = judge(row["previous"], row["window"], context)
    if context.critical_finding is not None:
        assert found.status is QueueStatus.INCONSISTENT
        assert found.reason.startswith(context.critical_finding)
    elif context.verdict not in (None, "match"):
        assert STATUS_TABLE[found.status].urgency is not Urgency.NOTHING


@given(st.lists(st.integers(1, WINDOW), max_size=20), st.integers(0, 3))
def test_a_window_is_a_time_and_counts_are_kept(pauses: list[int], slow: int) -> None:
    """However often somebody looks: no more than ten observations, the newest three whatever their age, the others not
    older than the window, and no count within it is lost; columns keep the same ones."""
    window: list[QueueObservation] = []
    at, seen = 0, []
    for number, pause in enumerate(pauses):
        at += 1 + (pause >> (2 * slow))
        newest = QueueObservation(observed_at=at, acknowledged=number % 3, released=1, archived=None)
        seen.append(newest)
        columns = newest_windows(window_array([window]), pa.array([asdict(newest)], STATUS_WINDOW.value_type))
        window = next_window(window, newest)
        assert columns.to_pylist() == window_array([window]).to_pylist()
        assert window[-3:] == seen[-3:] or len(window) == LONGEST
        assert len(window) <= LONGEST
        assert window[-1] == newest
        assert all(one.observed_at > at - WINDOW for one in window[:-3])
        within = [one for one in seen if one.observed_at > at - WINDOW]
        assert sum(one.released or 0 for one in window) >= len(within)
        assert sum(one.acknowledged or 0 for one in window) >= sum(one.acknowledged or 0 for one in within)


@given(st.lists(st.none() | st.integers(0, LONGEST), max_size=6))
def test_a_window_keeps_the_newest_observations(lengths: list[int | None]) -> None:
    """The newest observation comes last; of eleven within the window one is dropped, of rows of any lengths."""
    before = [None if n is None else [QueueObservation(observed_at=at) for at in range(n)] for n in lengths]
    held = pa.array([None if w is None else [asdict(each) for each in w] for w in before], STATUS_WINDOW)
    newest = QueueObservation(observed_at=99)
    found = newest_windows(held, pa.array([asdict(newest)] * len(lengths), STATUS_WINDOW.value_type))
    assert found.to_pylist() == window_array([next_window(own or (), newest) for own in before]).to_pylist()
