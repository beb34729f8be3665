"""The law of the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples.random_records import disjoint_batches

from acktrail.model.batches import StateBatch
from acktrail.model.reconciliation import DescribedPartition, ReconciliationInput, TopicStatus, Verdict, reconcile
from acktrail.model.replay import SharePartitionState, counts_by_state, durable_lag, unfinished_records
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("g1"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=0)
DISAGREE = {Verdict.LIVE_AHEAD, Verdict.DURABLE_AHEAD}


def state(
    start_offset: int | None = 0, done: int | None = 0, batches: tuple[StateBatch, ...] = ()
) -> SharePartitionState:
    return SharePartitionState(
        key=KEY,
        snapshot_epoch=1,
        state_epoch=1,
        leader_epoch=1,
        start_offset=start_offset,
        delivery_complete_count=done,
        batches=batches,
    )


def described(durable: SharePartitionState | None, end: int = 1_000, start: int = 0) -> DescribedPartition:
    """What a broker that holds `durable` answers."""
    if durable is None:
        return DescribedPartition(is_listed=False, log_start_offset=start, log_end_offset=end)
    return DescribedPartition(
        is_listed=True,
        start_offset=durable.start_offset,
        lag=durable_lag(durable, end),
        log_start_offset=start,
        log_end_offset=end,
    )


def verdict(
    durable: SharePartitionState | None,
    before: DescribedPartition,
    after: DescribedPartition,
    *,
    topic: TopicStatus | None = TopicStatus.PRESENT,
    incomplete: str | None = None,
    was_initialized: bool = False,
) -> Verdict:
    evidence = ReconciliationInput(
        durable=durable,
        before=before,
        after=after,
        topic_status=topic,
        incomplete=incomplete,
        was_initialized=was_initialized,
    )
    return reconcile(evidence).verdict


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[SharePartitionState, int]]:
    """States one share partition goes through without a reset, each with the log end of that moment."""
    start, done, end, history = draw(st.integers(0, 50)), 0, 100, []
    stays, is_quiet = draw(st.booleans()), draw(st.booleans())
    for _ in range(draw(st.integers(1, 8))):
        done += draw(st.integers(0, 5))
        advance = 0 if stays else draw(st.integers(0, done))
        start, done = start + advance, done - advance
        end += 0 if is_quiet else draw(st.integers(0, 20))
        history.append((state(start, done), end))
    return history


@given(histories(), st.data())
def test_a_replay_between_the_samples_is_never_ahead_or_behind(
    history: list[tuple[SharePartitionState, int]], data: st.DataObject
) -> None:
    """Whatever the group completes and producers append during an observation: no false alarm.

    The log ends are listed before the first and after the second description.
    """
    (early, early_end), (late, late_end) = history[0], history[-1]
    before = replace(described(early, early_end), log_end_offset=early_end - data.draw(st.integers(0, 9)))
    after = replace(described(late, late_end), log_end_offset=late_end + data.draw(st.integers(0, 9)))
    replayed, _ = data.draw(st.sampled_from(history))
    assert verdict(replayed, before, after) is Verdict.MATCH


@given(histories())
def test_a_replay_outside_quiet_samples_is_ahead_or_behind(history: list[tuple[SharePartitionState, int]]) -> None:
    """Once nothing moves, every difference in start offset or progress is told, and on the right side."""
    early, late = history[0][0], history[-1][0]
    assume((early.start_offset, durable_lag(early, 1_000)) != (late.start_offset, durable_lag(late, 1_000)))
    assert verdict(early, described(late), described(late)) is Verdict.LIVE_AHEAD
    assert verdict(late, described(early), described(early)) is Verdict.DURABLE_AHEAD


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_the_order_of_the_samples_does_not_matter(replayed: int, one: int, other: int) -> None:
    """A reset may move back: between is between the lesser and the greater, in either order."""
    samples = described(state(one)), described(state(other))
    assert verdict(state(replayed), *samples) is verdict(state(replayed), *reversed(samples))


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_swapping_the_sides_swaps_the_verdict(mine: int, theirs: int, done: int) -> None:
    """Live ahead and durable ahead are each other's mirror."""
    mirror = {
        Verdict.LIVE_AHEAD: Verdict.DURABLE_AHEAD,
        Verdict.DURABLE_AHEAD: Verdict.LIVE_AHEAD,
        Verdict.MATCH: Verdict.MATCH,
    }
    one, other = state(mine, done), state(theirs, 0)
    there = verdict(one, described(other), described(other))
    back = verdict(other, described(one), described(one))
    assert mirror[there] is back


@given(st.one_of(st.none(), st.integers(0, 99)), st.booleans(), st.booleans(), st.sampled_from([None, *TopicStatus]))
def test_an_incomplete_export_gets_the_verdict_unknown(
    start: int | None, listed: bool, durable: bool, topic: TopicStatus | None
) -> None:
    """Whatever else is known: where records may be missing, the verdict is unknown, says why and gives no lag; only a
    missing right comes first, with no lag either."""
    sample = DescribedPartition(is_listed=listed, start_offset=start, log_start_offset=0, log_end_offset=100)
    evidence = ReconciliationInput(
        durable=state(7) if durable else None,
        before=sample,
        after=sample,
        topic_status=topic,
        incomplete="offsets 3 to 9 were pruned",
    )
    judged = reconcile(evidence)
    if topic is TopicStatus.NOT_AUTHORIZED and not listed:
        assert judged.verdict is Verdict.NOT_AUTHORIZED
    else:
        assert (judged.verdict, judged.reason) == (Verdict.UNKNOWN, "offsets 3 to 9 were pruned")
    assert (judged.durable_lag, judged.unfinished_records) == (None, None)


LISTED = described(state(10))
UNLISTED = DescribedPartition(is_listed=False, log_start_offset=0, log_end_offset=1_000)
GONE = DescribedPartition(is_listed=False, is_group_present=False)
HIDDEN = DescribedPartition(is_listed=False, is_group_present=None, is_authorized=False)
UNINITIALIZED = state(None, None)


@pytest.mark.parametrize(
    ("durable", "before", "after", "topic", "expected"),
    [
        (state(10), LISTED, LISTED, TopicStatus.PRESENT, Verdict.MATCH),
        (UNINITIALIZED, described(UNINITIALIZED), described(UNINITIALIZED), TopicStatus.PRESENT, Verdict.MATCH),
        (UNINITIALIZED, described(UNINITIALIZED), LISTED, TopicStatus.PRESENT, Verdict.MATCH),
        (UNINITIALIZED, LISTED, LISTED, TopicStatus.PRESENT, Verdict.LIVE_AHEAD),
        (state(10), described(UNINITIALIZED), described(UNINITIALIZED), TopicStatus.PRESENT, Verdict.DURABLE_AHEAD),
        (None, LISTED, LISTED, TopicStatus.PRESENT, Verdict.MISSING_STATE),
        (None, described(UNINITIALIZED), LISTED, TopicStatus.PRESENT, Verdict.MISSING_STATE),
        (None, UNLISTED, LISTED, TopicStatus.PRESENT, Verdict.MATCH),
        (state(10), LISTED, UNLISTED, TopicStatus.PRESENT, Verdict.MATCH),
        (state(10), GONE, GONE, TopicStatus.PRESENT, Verdict.ORPHAN_STATE),
        (state(10), GONE, GONE, None, Verdict.ORPHAN_STATE),
        (state(10), UNLISTED, UNLISTED, TopicStatus.DELETED, Verdict.ORPHAN_STATE),
        (state(10), UNLISTED, UNLISTED, TopicStatus.RECREATED, Verdict.ORPHAN_STATE),
        (state(10), UNLISTED, UNLISTED, TopicStatus.PRESENT, Verdict.ORPHAN_STATE),
        (state(10), GONE, UNLISTED, TopicStatus.PRESENT, Verdict.UNKNOWN),
        (state(10), DescribedPartition(is_listed=False), DescribedPartition(is_listed=False), None, Verdict.UNKNOWN),
        (state(10), LISTED, replace(LISTED, error="29: not authorized"), TopicStatus.PRESENT, Verdict.UNKNOWN),
        (state(10), replace(UNLISTED, is_group_present=None), LISTED, TopicStatus.PRESENT, Verdict.UNKNOWN),
        (state(10), HIDDEN, HIDDEN, TopicStatus.PRESENT, Verdict.NOT_AUTHORIZED),
        (state(10), GONE, HIDDEN, None, Verdict.NOT_AUTHORIZED),
        (state(10), LISTED, replace(LISTED, is_authorized=False), TopicStatus.PRESENT, Verdict.NOT_AUTHORIZED),
        (state(10), UNLISTED, UNLISTED, TopicStatus.NOT_AUTHORIZED, Verdict.NOT_AUTHORIZED),
        (state(10), LISTED, LISTED, TopicStatus.NOT_AUTHORIZED, Verdict.MATCH),
    ],
)
def test_each_case_has_its_verdict(
    durable: SharePartitionState | None,
    before: DescribedPartition,
    after: DescribedPartition,
    topic: TopicStatus | None,
    expected: Verdict,
) -> None:
    """The cases of the law that are not about order."""
    assert verdict(durable, before, after, topic=topic) is expected


@given(disjoint_batches(start=20))
def test_state_outside_the_log_is_reported_though_both_sides_agree(batches: tuple[StateBatch, ...]) -> None:
    """Below the log start is legal but told; anything beyond the log end is told, also a batch alone."""
    durable = state(20, 0, batches)
    end = durable.end_offset
    assert end is not None
    inside = described(durable, end)
    assert verdict(durable, inside, inside) is Verdict.MATCH
    effective = durable.first_unfinished_offset
    assert effective is not None
    finished = described(durable, max(end, effective), start=effective)
    assert verdict(durable, finished, finished) is Verdict.MATCH, "what is finished may go"
    late_start = described(durable, max(end, effective + 1), start=effective + 1)
    assert verdict(durable, late_start, late_start) is Verdict.BEFORE_LOG_START
    short = described(durable, end - 1)
    assert verdict(durable, short, short) is Verdict.PAST_LOG_END


def test_a_reset_in_between_is_not_called_ahead() -> None:
    """With resets while the state topic was read, a value outside the samples proves nothing."""
    low, high = described(state(10)), described(state(20))
    assert verdict(state(50), low, high) is Verdict.DURABLE_AHEAD
    assert verdict(state(50), low, high, was_initialized=True) is Verdict.UNKNOWN
    assert verdict(state(15), low, high, was_initialized=True) is Verdict.MATCH
    assert verdict(state(15), UNLISTED, UNLISTED, was_initialized=True) is Verdict.UNKNOWN


@given(st.integers(0, 99), st.integers(0, 99))
def test_moved_is_set_when_the_descriptions_differ(one: int, other: int) -> None:
    """`moved` tells exactly whether the two descriptions differ."""
    evidence = ReconciliationInput(durable=state(one), before=described(state(one)), after=described(state(other)))
    assert reconcile(evidence).moved is (one != other)


@given(disjoint_batches(start=20), st.integers(0, 40), st.integers(0, 30))
def test_the_backlog_counts_every_offset_that_can_still_be_delivered(
    batches: tuple[StateBatch, ...], log_start: int, beyond: int
) -> None:
    """Offset by offset: inside the log, at or above the start offset, in no terminal state."""
    durable, log_end = state(20, 0, batches), 20 + beyond
    done = {o for b in batches if b.is_terminal for o in range(b.first_offset, b.last_offset + 1)}
    left = [o for o in range(max(20, log_start), log_end) if o not in done]
    assert unfinished_records(durable, log_start, log_end) == len(left)


@given(disjoint_batches(start=20))
def test_every_offset_is_counted_in_one_state(batches: tuple[StateBatch, ...]) -> None:
    """The counts by delivery state add up to the offsets the batches cover."""
    covered = sum(b.last_offset - b.first_offset + 1 for b in batches)
    assert counts_by_state(state(20, 0, batches)).total() == covered


def test_nothing_is_computed_from_what_is_not_known() -> None:
    """An unknown offset or count makes the lags unknown, never a number."""
    assert durable_lag(state(10, None), 100) is None
    assert durable_lag(state(None, 0), 100) is None
    assert durable_lag(state(10, 0), None) is None
    assert unfinished_records(state(10, None), 0, 100) == 90
    assert unfinished_records(state(None, 0), 0, 100) is None
    assert unfinished_records(state(10, 0), None, 100) is None
