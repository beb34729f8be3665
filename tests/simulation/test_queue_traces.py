"""Statuses of simulated groups: each kind of consumer is found out, and a healthy or idle one never is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.queue_observations import Judgement, QueueObservation, judge, next_window
from simulation.leader_random_walk import KEY, LeaderFixture

from acktrail.model.queue_status import LONGEST, STATUS_TABLE, WINDOW, QueueStatus, Urgency
from acktrail.model.replay import unfinished_records
from acktrail_simulation.error_codes import ErrorCode

ACCEPT, RELEASE, REJECT = 1, 2, 3
LIMIT = 5
LEAST_ROUNDS, MOST_ROUNDS = 3, 14
few = settings(max_examples=20)
EVERY = WINDOW // LONGEST
"""Between two observations."""


@dataclass
class Trace:
    """A share group at work, observed at the end of each round."""

    desk: LeaderFixture = field(default_factory=lambda: LeaderFixture(start=0))
    counts: dict[str, int] = field(default_factory=dict)
    window: list[QueueObservation] = field(default_factory=list)
    judged: list[Judgement] = field(default_factory=list)

    def settle(self, how: int, *, but: int | None = None, most: int = 500) -> None:
        """Take what there is and settle each record but one; released records come again."""
        while got := self.desk.fetch(most=most):
            for first, last, count in got:
                for offset in range(first, last + 1):
                    if offset != but:
                        self._say(offset, how, count)
            if most < 500:
                return

    def _say(self, offset: int, how: int, count: int) -> None:
        assert self.desk.say(offset, offset, how) is ErrorCode.NONE
        is_last = how == RELEASE and count >= LIMIT
        name = "archived" if is_last else {ACCEPT: "acknowledged", RELEASE: "released", REJECT: "archived"}[how]
        self.counts[name] = self.counts.get(name, 0) + 1

    def observe(self) -> QueueStatus:
        """One more observation, and the status after it."""
        state, log = self.desk.coordinator.memory.states[KEY], self.desk.log
        counts = {name: self.counts.get(name, 0) for name in ("acknowledged", "released", "archived")}
        seen = QueueObservation(
            observed_at=len(self.judged) * EVERY,
            first_unfinished_offset=state.first_unfinished_offset,
            log_start_offset=log.start_offset,
            log_end_offset=log.end_offset,
            unfinished_records=unfinished_records(state, log.start_offset, log.end_offset),
            state_epoch=state.state_epoch,
            archiving_records=0,
            **counts,
        )
        self.counts.clear()
        self.window = next_window(self.window, seen)
        previous = self.judged[-1] if self.judged else None
        unseen_at = None if previous is None else previous.unseen_at
        self.judged.append(judge(previous, self.window, completeness="complete", members=1, unseen_at=unseen_at))
        return self.judged[-1].status


def statuses(rounds: list[int], act: Callable[[Trace], None]) -> list[QueueStatus]:
    """The status after each round, in which as many records come and the group acts."""
    trace, found = Trace(), []
    for records in rounds:
        if records:
            trace.desk.log.append(records)
        act(trace)
        found.append(trace.observe())
    return found


ROUNDS = st.lists(st.integers(1, 6), min_size=LEAST_ROUNDS, max_size=MOST_ROUNDS)


@few
@given(st.lists(st.integers(0, 6), min_size=LEAST_ROUNDS, max_size=MOST_ROUNDS))
def test_a_group_that_finishes_everything_is_never_bad(rounds: list[int]) -> None:
    """However many records come, and where none come. Once what came has left the window it is idle."""
    found = statuses([*rounds, *[0] * (LONGEST + 1)], lambda trace: trace.settle(ACCEPT))
    assert all(STATUS_TABLE[status].urgency is Urgency.NOTHING for status in found)
    assert found[-1] is QueueStatus.IDLE


@few
@given(ROUNDS, st.integers(0, LONGEST + 3))
def test_a_record_that_is_held_stops_the_group(rounds: list[int], pause: int) -> None:
    """Everything above the first record is finished, and it stays: stuck from the third observation to the last, also
    where no records come for longer than a window."""
    found = statuses([2, *rounds, *[0] * pause], lambda trace: trace.settle(ACCEPT, but=0))
    assert set(found[2:]) == {QueueStatus.STUCK}


@pytest.mark.parametrize(("how", "status"), [(RELEASE, QueueStatus.RELEASE_LOOP), (REJECT, QueueStatus.REJECT_STORM)])
@few
@given(rounds=ROUNDS)
def test_a_group_that_finishes_nothing_shows_at_once(how: int, status: QueueStatus, rounds: list[int]) -> None:
    """From the first observation on; the broker archives what was delivered five times."""
    assert set(statuses(rounds, lambda trace: trace.settle(how))) == {status}


@few
@given(st.lists(st.integers(4, 9), min_size=LEAST_ROUNDS, max_size=MOST_ROUNDS))
def test_a_group_that_is_too_slow_lags(rounds: list[int]) -> None:
    """One batch is finished where two come: lagging from the third observation on, and never stuck."""

    def act(trace: Trace) -> None:
        trace.desk.log.append(6)
        trace.settle(ACCEPT, most=1)

    assert set(statuses([9, *rounds], act)[2:]) == {QueueStatus.LAGGING}
