"""What the rules of statuses say; and that the documents have every status with its words."""

from __future__ import annotations

import datetime as dt
import re
from itertools import compress
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import STATUS_WINDOW
from acktrail.model.queue_status import COUNTED, LONGEST, RULES, STATUS_TABLE, WINDOW, QueueStatus, Urgency
from acktrail.replay.time_buckets import newest_windows
from acktrail_jobs.statuses import status_rows
from acktrail_jobs.statuses.status_rules import CONTEXT, judge_windows

DOCUMENT = Path(__file__).parents[2] / "docs/reference/statuses.md"


Observation = dict[str, Any]
"""A row of a window. Times in µs since the epoch; what is left out is not known."""


def seen(start: int, end: int, *, at: int = 0, log_start: int = 0, **more: Any) -> Observation:
    """An observation of a queue whose records from `start` to before `end` are unfinished."""
    own = {"first_unfinished_offset": start, "log_start_offset": log_start, "log_end_offset": end}
    own |= {"unfinished_records": end - max(start, log_start), "archiving_records": 0}
    return {"observed_at": at, **own, **dict.fromkeys(COUNTED, 0), **more}


def judged(
    *window: Observation, previous: QueueStatus | None = None, completeness: str | None = "complete", **more: Any
) -> Any:
    """The status after the newest of `window`, with its reason; `previous`: that at the observation before."""
    before = {} if previous is None else {"previous_status": previous.value, "previous_since": 0}
    context = {"members": 1, "first_look_at": 0, "completeness": completeness, **before, **more}
    (row,) = judge_windows(
        pa.array([[*window]], STATUS_WINDOW), pa.Table.from_pylist([context], schema=CONTEXT)
    ).to_pylist()
    assert row["status_since"] is not None
    return SimpleNamespace(**row)


def status(*window: Observation, **more: Any) -> str:
    return str(judged(*window, **more).status)


def test_what_is_held_for_one_observation_is_not_stuck() -> None:
    """Two observations at one offset are none, three are where records above it are finished; where none is, a third of
    the window is, and only where no earlier pause was as long."""
    third = WINDOW // 3
    assert status(seen(5, 9), seen(5, 12)) == "not_judged"
    assert status(seen(5, 9), seen(5, 9, acknowledged=2), seen(5, 9)) == "stuck"
    pause = [seen(5, 9), seen(5, 12, at=third // 2), seen(5, 15, at=third)]
    assert status(*pause) == "stuck"
    assert status(*pause[:2], seen(5, 15, at=third - 1)) == "not_judged"
    assert status(seen(0, 4), *pause) == "stuck"
    assert status(seen(0, 4), seen(0, 5), seen(0, 6), *pause) == "not_judged"


def test_a_pause_of_the_producers_is_no_recovery() -> None:
    """Stuck until the start offset moves or nothing is unfinished."""
    flat = [seen(5, 9)] * LONGEST
    assert status(*flat, previous=QueueStatus.STUCK) == "stuck"
    assert status(*flat, previous=QueueStatus.LAGGING) == "not_judged"
    assert status(*flat[1:], seen(6, 9), previous=QueueStatus.STUCK) == "not_judged"
    assert status(*flat[1:], seen(9, 9), previous=QueueStatus.STUCK) == "ok"


def test_lagging_stays_until_fewer_are_unfinished() -> None:
    """It begins where what was in the log three observations ago is not finished: that may change from one observation
    to the next while the lag still rises."""
    rising = [seen(600 * at, 640 * at + 100, at=at, acknowledged=600) for at in range(1, 9)]
    assert status(*rising) == "not_judged"
    assert status(*rising, previous=QueueStatus.LAGGING) == "lagging"
    assert status(*rising, seen(6_000, 6_050), previous=QueueStatus.LAGGING) == "not_judged"


def test_retention() -> None:
    """Records that were removed unfinished, or that the next step of the log start would remove; not those of a group
    that keeps up."""
    assert status(seen(5, 50), seen(5, 50, log_start=20)) == "retention_risk"
    assert status(seen(30, 50), seen(31, 50, log_start=20)) == "retention_risk"
    assert status(seen(30, 50), seen(60, 80, log_start=20)) == "ok"
    assert status(seen(95, 96, log_start=0), seen(97, 98, log_start=90), seen(99, 99, log_start=90)) == "ok"
    assert judged(seen(30, 50), seen(60, 90, log_start=20), unseen_at=0, lost_records=7).status == "loss_unseen"
    assert status(seen(50, 50), seen(50, 50, log_start=50)) == "idle"


def test_deliveries_that_end_badly() -> None:
    """A releaser's records end archived after some deliveries, a rejecter's at the first; a few of both are normal, and
    so is one lock that ended."""
    assert status(seen(0, 9, released=4, archived=1)) == "release_loop"
    assert status(seen(0, 9, released=4), max_delivery_count=2) == "release_loop"
    assert status(seen(0, 9, released=1), max_delivery_count=1) == "not_judged"
    assert status(seen(9, 9, archived=4)) == "reject_storm"
    assert status(seen(9, 9, acknowledged=5, released=2, archived=1)) == "ok"
    waiting = seen(0, 9, archiving_records=2)
    assert status(waiting, waiting, waiting) == "archiving_stuck"
    assert status(waiting, seen(0, 9, archiving_records=2, archived=1), waiting) == "reject_storm"


def test_what_is_not_known_is_unknown() -> None:
    """No state, an incomplete one, no start offset, no ends of the log; what is certain nevertheless comes first."""
    nothing = {"observed_at": 0}
    assert status(nothing, completeness=None, verdict="missing_state") == "state_unknown"
    assert status(seen(9, 9), completeness="gap") == "state_unknown"
    assert status(nothing) == "state_unknown"
    assert status({"observed_at": 0, "log_start_offset": 4, "log_end_offset": 4}) == "idle"
    assert status(seen(9, 9), verdict="unknown", verdict_reason="why") == "state_unknown"
    rejected = {"observed_at": 0, "acknowledged": 0, "released": 0, "archived": 3}
    assert status(rejected, completeness="gap") == "reject_storm"
    joined = judged(nothing, completeness=None, verdict="match")
    assert (joined.status, joined.reason) == (
        "not_judged",
        "It joined after the export began; the next run will include it",
    )


def test_what_is_new_is_not_judged() -> None:
    """One observation shows no trend, and no trouble in a group that has members; trouble that needs none shows."""
    assert status(seen(1, 9)) == "not_judged"
    assert status(seen(1, 9, archived=2)) == "reject_storm"
    assert status(seen(1, 9), members=0) == "unattended"


def test_one_fall_may_be_a_pause_of_the_producer() -> None:
    """As many unfinished records as now were finished: once says nothing, twice shows that the group keeps up."""
    fell = [seen(240, 390), seen(480, 726), seen(726, 738), seen(954, 1_098)]
    assert status(*fell[:3]) == "ok"
    assert status(*fell) == "not_judged"
    assert status(*fell, seen(1_100, 1_110), seen(1_240, 1_340)) == "ok"


def test_where_a_group_begins_says_whether_records_wait_for_it() -> None:
    """Nothing was ever delivered: with `latest` the records in the log are not for it, members or not; with `earliest`
    they are, and a member that finishes none for a third of the window is stuck."""

    def undelivered(end: int, at: int = 0) -> Observation:
        return {"observed_at": at, "log_start_offset": 0, "log_end_offset": end}

    late = judged(undelivered(50), members=0, offset_reset="latest")
    assert late.status == "idle"
    assert "starts at the log end (`latest`): the 50 records in the log are not for it" in late.reason
    for number in (1, 4):
        assert status(*[undelivered(50)] * number, members=1, offset_reset="latest") == "idle"
        assert status(*[undelivered(50)] * number, members=0, offset_reset="earliest") == "unattended"
        assert status(*[undelivered(50)] * number, members=1, offset_reset="earliest") == "not_judged"
    assert status(undelivered(50), undelivered(60), members=1, offset_reset="latest") == "not_judged"
    pause = [undelivered(50, at) for at in (0, 1, WINDOW // 3)]
    assert status(*pause, members=1, offset_reset="earliest") == "stuck"
    assert status(*pause, members=1, offset_reset="latest") == "idle"
    lost = {"lost_records": 7, "unseen_at": 0, "members": 0}
    assert status(undelivered(50), offset_reset="earliest", **lost) == "retention_risk"
    assert status(undelivered(50), offset_reset="latest", **{**lost, "unseen_at": None}) == "idle"


def test_what_ended_has_ended() -> None:
    """Counts older than the window have no colour, nor a storm or a loop whose newest deliveries end well, or whose
    consumers have left and end nothing any more."""
    late = WINDOW + 1
    for name, bad in (("archived", "reject_storm"), ("released", "release_loop")):
        storm = seen(9, 9, **{name: 4})
        after = "loss_unseen" if name == "archived" else "ok"
        more = {"unseen_at": 0} if name == "archived" else {}
        more |= {"max_delivery_count": 2}
        assert status(storm, seen(9, 9), **more) == bad
        assert status(storm, seen(9, 9, acknowledged=1), **more) == after
        assert status(storm, seen(9, 9), members=0, **more) == after
        assert status(storm, seen(9, 9, at=late), **more) == ("idle" if name == "released" else after)
        old = seen(9, 9, at=late, recorded_at=0, **{name: 4})
        assert status(old, **more) == ("idle" if name == "released" else after)


def test_archived_records_are_seen_until_somebody_acknowledges_them() -> None:
    """Whatever comes after them, and whatever the status is then; that they may be no records is said."""
    storm = judged(seen(400, 400, at=5, archived=400), archived_seen=400, archived_unclear=True)
    assert storm.status == "reject_storm"
    assert "0 released, 400 archived, no two of them adjacent: they may not be records" in storm.reason
    well = seen(410, 410, at=WINDOW + 9, acknowledged=10)
    after = judged(well, unseen_at=5, archived_seen=400)
    assert after.status == "loss_unseen"
    told = "Permanently lost: 400 archived, 1,020 removed by the retention before they were finished, 3 skipped by a "
    "reset. "
    assert told in judged(well, unseen_at=5, archived_seen=400, lost_records=1020, skipped_records=3).reason
    alone = judged(seen(410, 420), members=0, unseen_at=5, archived_seen=400)
    assert alone.status == QueueStatus.UNATTENDED
    assert alone.reason.endswith(". Permanently lost: 400 archived. No one has acknowledged this yet")
    assert judged(well, archived_seen=400).status == QueueStatus.OK
    lags = [seen(at, 90 + 60 * at, at=at, acknowledged=1) for at in range(1, 9)]
    assert judged(*lags, unseen_at=5, archived_seen=1).status == QueueStatus.LAGGING


def test_a_reset_is_seen() -> None:
    """The start offset falls, or the state epoch rises."""
    assert status(seen(9, 9, state_epoch=1), seen(2, 9, state_epoch=2)) == "rewound"
    assert status(seen(9, 9, state_epoch=1), seen(9, 9, state_epoch=2)) == "rewound"


@given(st.integers(0, 9), st.integers(1, LONGEST), st.sampled_from(list(QueueStatus)))
def test_an_idle_topic_is_never_bad(end: int, length: int, previous: QueueStatus) -> None:
    """Nothing unfinished, nothing that moves: idle, whatever was before; retention may empty the log."""
    window = [seen(end, end, log_start=number * end // 9) for number in range(length)]
    found = QueueStatus(status(*window, previous=previous))
    assert found is QueueStatus.IDLE
    assert STATUS_TABLE[found].urgency is Urgency.NOTHING


def test_a_critical_finding_and_a_verdict_come_before_what_is_well() -> None:
    """A critical finding is the status, in its words; where the verdict is no match nothing is called well or new."""
    found = judged(seen(5, 50, log_start=20), critical_finding="past_log_end: so it is", verdict="past_log_end")
    assert (found.status, found.reason) == (QueueStatus.INCONSISTENT, "past_log_end: so it is")
    for window in ([seen(9, 9)], [seen(1, 9)], [seen(9, 9, state_epoch=1), seen(2, 9, state_epoch=2)]):
        assert status(*window, verdict="unknown") == "state_unknown"


def test_unknown_observations_are_passed_over() -> None:
    """Rules compare the known ones around them, and say so in numbers."""
    hole = {"observed_at": 0}
    found = judged(seen(5, 9), hole, seen(5, 12), hole, seen(5, 15, acknowledged=2, archived=1))
    assert (found.status, found.reason) == (
        "stuck",
        (
            "Offset 5 has blocked it since 1970-01-01 00:00:00 UTC; 10 records wait there, 6 came and 3 were finished "
            "meanwhile; 1 member"
        ),
    )
    assert status(hole, seen(9, 9, log_start=0), hole, seen(9, 9, log_start=3), hole) == "state_unknown"
    assert status(seen(9, 9, state_epoch=1), hole, seen(9, 9, state_epoch=2)) == "rewound"
    assert status(seen(9, 9), seen(9, 9), members=None) == "idle"
    lag = judged(seen(1, 5), hole, seen(2, 7), seen(3, 9), seen(4, 2004, at=60_000_000), seen(5, 4005, at=660_000_000))
    assert lag.reason == "4,000 unfinished, 4 11 min ago: the consumers do not keep up; 1 member"


def test_many_windows_are_judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of any length side by side: each row is what it is alone, without rows there are none."""
    assert judge_windows(pa.array([], STATUS_WINDOW), CONTEXT.empty_table()).num_rows == 0
    windows = [[seen(5, 9)], [seen(5, 9), seen(5, 12), seen(5, 15)], [seen(9, 9)] * LONGEST, [seen(1, 9, archived=2)]]
    context = pa.Table.from_pylist(
        [{"completeness": "complete", "members": n, "first_look_at": 0} for n in range(4)], schema=CONTEXT
    )
    held = pa.array(windows, STATUS_WINDOW)
    found = judge_windows(held, context).to_pylist()
    alone = [judged(*window, members=n) for n, window in enumerate(windows)]
    assert [(row["status"], row["reason"]) for row in found] == [(each.status, each.reason) for each in alone]
    monkeypatch.setattr(status_rows, "_ROWS_AT_ONCE", 3)
    assert status_rows.judge_in_slices(held, context).to_pylist() == found
    newest = pa.array([seen(9, 9, at=WINDOW // 2)] * 5, STATUS_WINDOW.value_type)
    kept = newest_windows(pa.concat_arrays([held, pa.array([None], STATUS_WINDOW)]), newest)
    assert [len(row) for row in kept.to_pylist()] == [2, 4, LONGEST, 2, 1]


few, times = st.none() | st.integers(0, 3), st.integers(1, 2 * WINDOW)
drawn = st.builds(seen, st.just(9), st.just(9), at=times, recorded_at=st.none() | times, released=few, archived=few)


@given(st.lists(drawn, min_size=1))
def test_sums_are_of_what_is_known_within_the_window(found: list[Observation]) -> None:
    """By when it was recorded; of observations that have all counts. Without one of these nothing is known."""
    window = sorted(found, key=itemgetter("observed_at"))
    begin = window[-1]["observed_at"] - WINDOW
    recent = [min(one["observed_at"], one["recorded_at"] or WINDOW * 2) > begin for one in window]
    whole = [one for one in compress(window, recent) if None not in (one["released"], one["archived"])]
    held = pa.array([window], STATUS_WINDOW)
    (row,) = judge_windows(held, pa.Table.from_pylist([{}], schema=CONTEXT)).to_pylist()
    expected = (0, sum(one["released"] for one in whole)) if whole else (None, None)
    assert (row["acknowledged"], row["released"]) == expected


@given(st.lists(st.integers(1, WINDOW) | st.just(WINDOW), max_size=20), st.integers(0, 3))
def test_a_window_is_a_time_and_counts_are_kept(pauses: list[int], slow: int) -> None:
    """However often somebody looks: no more than ten observations, the newest three whatever their age, the others not
    older than the window, and no count within it is lost."""
    window: list[Observation] = []
    at, seen = 0, list[Observation]()
    for number, pause in enumerate(pauses):
        at += 1 + (pause >> (2 * slow))
        own = {"observed_at": at, "acknowledged": number % 3, "released": 1, "archived": None}
        newest = pa.array([own], STATUS_WINDOW.value_type)
        seen += newest.to_pylist()
        (window,) = newest_windows(pa.array([window], STATUS_WINDOW), newest).to_pylist()
        assert window[-3:] == seen[-3:] or len(seen) > LONGEST
        assert min(3, len(seen)) <= len(window) <= LONGEST
        assert window[-1] == seen[-1]
        begin = seen[-1]["observed_at"] - dt.timedelta(microseconds=WINDOW)
        assert all(one["observed_at"] > begin for one in window[:-3])
        within = [one for one in seen if one["observed_at"] > begin]
        assert sum(one["released"] for one in window) >= len(within)
        assert sum(one["acknowledged"] for one in window) >= sum(one["acknowledged"] for one in within)


def test_rules_are_in_the_order_of_the_statuses() -> None:
    """The first rule that applies is the worst."""
    order = list(STATUS_TABLE)
    ranks = [order.index(status) for status, _ in RULES.values()]
    assert ranks == sorted(ranks)
    assert set(range(len(order))) == set(ranks)


def test_the_document_says_when_each_status_applies() -> None:
    """The table of docs/reference/statuses.md that is written by hand has every status, worst first."""
    section = DOCUMENT.read_text("utf-8").split("## When a status applies\n")[1]
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \|$", section, re.MULTILINE) == list(STATUS_TABLE)
