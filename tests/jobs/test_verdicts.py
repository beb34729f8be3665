"""The law of the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jobs.world import durable_lag
from samples.random_records import disjoint_batches

from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.model.batches import StateBatch
from acktrail.model.reconciliation import TopicStatus, Verdict
from acktrail.model.replay import SharePartitionState, counts_by_state, unfinished_records
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId
from acktrail.replay.derived_columns import derived_columns
from acktrail_jobs.reconcile.verdict_rules import verdicts_of

KEY = SharePartition(group_id=GroupId("g1"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=0)


@dataclass(frozen=True, kw_only=True)
class DescribedPartition:
    """One sample, in the columns of ``Descriptions.beside``."""

    is_listed: bool
    start_offset: int | None = None
    lag: int | None = None
    error: str | None = None
    is_group_present: bool | None = True
    is_authorized: bool = True
    log_start_offset: int | None = None
    log_end_offset: int | None = None


KINDS = {"is_listed": pa.bool_(), "is_group_present": pa.bool_(), "is_authorized": pa.bool_(), "error": pa.string()}
EVIDENCE = pa.schema(
    [
        *(each for each in SHARE_PARTITION_STATES if each.name in {*SharePartitionState.__slots__, *KEY_COLUMNS}),
        *(
            (f"{f.name}_{p}", KINDS.get(f.name, pa.int64()))
            for p in ("before", "after")
            for f in fields(DescribedPartition)
        ),
        *(("topic_status", pa.string()), ("incomplete", pa.string()), ("was_initialized", pa.bool_())),
    ]
)


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


def judged(
    durable: SharePartitionState | None, before: DescribedPartition, after: DescribedPartition, **more: Any
) -> dict[str, Any]:
    own = {} if durable is None else {**asdict(durable), **asdict(durable.key)}
    samples = {"before": before, "after": after}
    row = {**own, **{f"{name}_{p}": value for p, each in samples.items() for name, value in asdict(each).items()}}
    columns = pa.Table.from_pylist([{**row, "was_initialized": False, **more}], schema=EVIDENCE)
    for name in ("end_offset", "first_unfinished_offset"):
        columns = columns.append_column(name, derived_columns(columns)[name])
    found: dict[str, Any] = verdicts_of(columns).to_pylist()[0]
    return found


def verdict(
    durable: SharePartitionState | None,
    before: DescribedPartition,
    after: DescribedPartition,
    *,
    topic: TopicStatus | None = TopicStatus.PRESENT,
    **more: Any,
) -> Verdict:
    return Verdict(judged(durable, before, after, topic_status=topic, **more)["verdict"])


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
    why = "offsets 3 to 9 were pruned"
    found = judged(state(7) if durable else None, sample, sample, topic_status=topic, incomplete=why)
    if topic is TopicStatus.NOT_AUTHORIZED and not listed:
        assert found["verdict"] == Verdict.NOT_AUTHORIZED
    else:
        assert (found["verdict"], found["reason"]) == (Verdict.UNKNOWN, why)
    assert (found["durable_lag"], found["unfinished_records"]) == (None, None)


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


@given(disjoint_batches(start=20), st.booleans(), st.integers(0, 40), st.integers(0, 30))
def test_the_backlog_counts_every_offset_that_can_still_be_delivered(
    batches: tuple[StateBatch, ...], in_order: bool, log_start: int, beyond: int
) -> None:
    """Offset by offset: inside the log, at or above the start offset, in no terminal state; whatever the batches'
    order."""
    durable, log_end = state(20, 0, batches if in_order else batches[::-1]), 20 + beyond
    done = {o for b in batches if b.is_terminal for o in range(b.first_offset, b.last_offset + 1)}
    left = [o for o in range(max(20, log_start), log_end) if o not in done]
    assert unfinished_records(durable, log_start, log_end) == len(left)
    sample = described(durable, log_end, log_start)
    found = judged(durable, sample, sample)
    assert (found["durable_lag"], found["unfinished_records"]) == (beyond, len(left))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({}, {}, "replayed start offset 10, described start offset 10"),
        ({}, {"start_offset": 5}, "replayed start offset 10, described start offset 5 to 10"),
        ({"start_offset": None}, {}, "replayed start offset 10, described no start offset to 10"),
        ({}, {"lag": None}, "replayed start offset 10, described start offset 10; lag not known"),
        ({"lag": 880}, {"lag": 880}, "replayed progress 10, described at least 120"),
        ({"lag": 995}, {"lag": 995}, "replayed progress 10, described at most 5"),
        (
            {},
            {"log_start_offset": 11},
            "start offset 10, the log starts at 11: unfinished records between them were removed",
        ),
        (
            {"log_end_offset": 9},
            {"log_end_offset": 9, "lag": None},
            "the state ends at offset 10, the log at 9: nothing is delivered until the log reaches offset 10",
        ),
        ({}, {"is_authorized": False}, "DESCRIBE on the group or its topics was missing after the export"),
        (
            {"is_authorized": False, "error": "no"},
            {},
            "DESCRIBE on the group or its topics was missing before the export: no",
        ),
        ({}, {"error": "asleep"}, "the description after the export failed: asleep"),
        ({"is_group_present": None}, {}, "the group could not be described before the export"),
        ({}, {"start_offset": 2**63 - 1}, f"replayed start offset 10, described start offset 10 to {2**63 - 1}"),
    ],
)
def test_reasons_have_the_numbers_that_decided(before: dict[str, Any], after: dict[str, Any], reason: str) -> None:
    """What the samples say where they differ from the usual one."""
    usual = described(state(10))
    found = judged(state(10), replace(usual, **before), replace(usual, **after), topic_status="present")
    assert found["reason"] == reason


@pytest.mark.parametrize("greatest", [2**61, 2**63 - 1])
def test_offsets_that_are_too_great_to_add_are_still_compared(greatest: int) -> None:
    """Records can name any offset: a start or a batch beyond the log is told, and no number is made up."""
    usual = described(state(10))
    far, wide = (
        state(greatest),
        state(10, 0, (StateBatch(first_offset=10, last_offset=greatest, delivery_state=0, delivery_count=1),)),
    )
    for durable in (far, wide):
        sample = replace(usual, start_offset=durable.start_offset)
        found = judged(durable, sample, sample, topic_status="present")
        assert found["verdict"] == Verdict.PAST_LOG_END
    assert judged(far, usual, usual)["verdict"] == Verdict.DURABLE_AHEAD


@given(disjoint_batches(start=20))
def test_every_offset_is_counted_in_one_state(batches: tuple[StateBatch, ...]) -> None:
    """The counts by delivery state add up to the offsets the batches cover."""
    covered = sum(b.last_offset - b.first_offset + 1 for b in batches)
    assert counts_by_state(state(20, 0, batches)).total() == covered


def test_nothing_is_computed_from_what_is_not_known() -> None:
    """An unknown offset makes the number of unfinished records unknown, never a number."""
    assert unfinished_records(state(10, None), 0, 100) == 90
    assert unfinished_records(state(None, 0), 0, 100) is None
    assert unfinished_records(state(10, 0), None, 100) is None
