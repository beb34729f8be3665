"""What the rules of statuses say of plain windows; and that the documents have every status with its words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.queue_rules import RULES, WINDOW, Judgement, QueueObservation, judge
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency

DOCUMENT = Path(__file__).parents[2] / "docs/quality.md"


def seen(start: int, end: int, *, at: int = 0, log_start: int = 0, **more: Any) -> QueueObservation:
    """An observation of a queue whose records from `start` to before `end` are unfinished."""
    own: dict[str, Any] = {"unfinished_records": end - max(start, log_start), "archiving_records": 0}
    counts = dict.fromkeys(("acknowledged", "released", "archived"), 0)
    fields = {
        "first_unfinished_offset": start,
        "log_start_offset": log_start,
        "log_end_offset": end,
        **own,
        **counts,
        **more,
    }
    return QueueObservation(observed_at=at, **fields)


def status(
    *window: QueueObservation, previous: QueueStatus | None = None, completeness: str | None = "complete"
) -> str:
    before = None if previous is None else Judgement(status=previous, since=0, reason="")
    return judge(before, window, completeness=completeness, members=1).status.value


def test_what_is_held_for_one_observation_is_not_stuck() -> None:
    """Two observations at one offset are none, three are; and without anything that moves it is lag, not a stop."""
    assert status(seen(5, 9), seen(5, 12)) == "ok"
    assert status(seen(5, 9), seen(5, 12), seen(5, 15)) == "stuck"
    assert status(seen(5, 9), seen(5, 9, acknowledged=2), seen(5, 9)) == "stuck"
    assert status(seen(5, 9), seen(5, 9), seen(5, 9)) == "lagging"


def test_a_pause_of_the_producers_is_no_recovery() -> None:
    """Stuck until the start offset moves or nothing is unfinished."""
    flat = [seen(5, 9)] * WINDOW
    assert status(*flat, previous=QueueStatus.STUCK) == "stuck"
    assert status(*flat, previous=QueueStatus.LAGGING) == "lagging"
    assert status(*flat[1:], seen(6, 9), previous=QueueStatus.STUCK) == "ok"
    assert status(*flat[1:], seen(9, 9), previous=QueueStatus.STUCK) == "ok"


def test_retention() -> None:
    """Records that were removed unfinished, or that the next step of the log start would remove; not those of a group
    that keeps up."""
    assert status(seen(5, 50), seen(5, 50, log_start=20)) == "retention_risk"
    assert status(seen(30, 50), seen(31, 50, log_start=20)) == "retention_risk"
    assert status(seen(30, 50), seen(60, 90, log_start=20)) == "ok"
    assert status(seen(95, 96, log_start=0), seen(97, 98, log_start=90), seen(99, 99, log_start=90)) == "ok"
    assert status(seen(50, 50), seen(50, 50, log_start=50)) == "idle"


def test_deliveries_that_end_badly() -> None:
    """A releaser's records end archived after some deliveries, a rejecter's at the first; a few of both are normal."""
    assert status(seen(0, 9, released=4, archived=1)) == "release_loop"
    assert status(seen(9, 9, archived=4)) == "reject_storm"
    assert status(seen(9, 9, acknowledged=5, released=2, archived=1)) == "ok"
    waiting = seen(0, 9, archiving_records=2)
    assert status(waiting, waiting, waiting) == "archiving_stuck"
    assert status(waiting, seen(0, 9, archiving_records=2, archived=1), waiting) == "stuck"


def test_what_is_not_known_is_unknown() -> None:
    """No state, an incomplete one, no start offset, no ends of the log; what is certain nevertheless comes first."""
    nothing = QueueObservation(observed_at=0)
    assert status(nothing, completeness=None) == "state_unknown"
    assert status(seen(9, 9), completeness="gap") == "state_unknown"
    assert status(nothing) == "state_unknown"
    assert status(QueueObservation(observed_at=0, log_start_offset=4, log_end_offset=4)) == "idle"
    assert status(seen(1, 9)) == "state_unknown"
    rejected = QueueObservation(observed_at=0, acknowledged=0, released=0, archived=3)
    assert status(rejected, completeness="gap") == "reject_storm"


def test_a_reset_is_seen() -> None:
    """The start offset falls, or the state epoch rises."""
    assert status(seen(9, 9, state_epoch=1), seen(2, 9, state_epoch=2)) == "rewound"
    assert status(seen(9, 9, state_epoch=1), seen(9, 9, state_epoch=2)) == "rewound"


@given(st.integers(0, 9), st.integers(1, WINDOW), st.sampled_from(list(QueueStatus)))
def test_an_idle_topic_is_never_bad(end: int, length: int, previous: QueueStatus) -> None:
    """Nothing unfinished, nothing that moves: idle, whatever was before; retention may empty the log."""
    window = [seen(end, end, log_start=number * end // 9) for number in range(length)]
    found = QueueStatus(status(*window, previous=previous))
    assert found is QueueStatus.IDLE
    assert STATUS_TABLE[found].urgency is Urgency.NOTHING


def test_rules_are_in_the_order_of_the_statuses() -> None:
    """The first rule that applies is the worst."""
    order = list(STATUS_TABLE)
    ranks = [order.index(status) for status, _ in RULES.values()]
    assert ranks == sorted(ranks)
    assert set(range(len(order))) == set(ranks)


def test_the_document_has_the_table_of_statuses() -> None:
    """docs/quality.md has every status, worst first, with its meaning, urgency and advice."""
    row = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| (\w+) \| ([^|]+) \|$", re.MULTILINE)
    found = [cells for cells in row.findall(DOCUMENT.read_text("utf-8")) if cells[0] in set(QueueStatus)]
    assert found == [(s.value, its.meaning, its.urgency.value, its.advice) for s, its in STATUS_TABLE.items()]
