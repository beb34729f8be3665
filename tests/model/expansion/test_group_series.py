"""From the positions of a group to a verdict: a proof holds in every life that fits the readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from definitions.group_series import AuditedDependency, GroupReading, RecordedWork, audit_group
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.model.expansion.ordering import CLOCKS_MS, NO_POSITION, ExpansionFence, OrderingReason, OrderingVerdict

NEW = ExpansionFence(low=0, high=0)
SETTLES_AT = 50


def dependency(low: int | None, high: int | None, begins: ExpansionFence = NEW) -> AuditedDependency:
    return AuditedDependency(
        source=0, destination=2, fence=ExpansionFence(low=low, high=high), begins=begins, settles_at_ms=SETTLES_AT
    )


def reading(at: int, source: int | None, destination: int | None) -> GroupReading:
    return GroupReading(observed_at_ms=at, positions={0: source, 2: destination})


@pytest.mark.parametrize("case", SEED["kip253"]["interval_cases"], ids=str)
def test_the_vectors_of_intervals_as_positions(case: dict[str, Any]) -> None:
    """R003-01: the worked series, where a group that has begun was first at the beginning of its new partition."""
    looks = [(source, index + 1 if started else 0) for index, (source, started) in enumerate(case["snapshots"])]
    series = [reading(0, None, 0), *(reading(index + 1, *each) for index, each in enumerate(looks))]

    assert audit_group(series, dependency(case["fence_low"], case["fence_high"])).verdict.name == case["verdict"]


def test_a_first_position_is_no_progress() -> None:
    """A group that was placed at the end of a new partition has not begun with it for certain; its next step has."""
    placed = [reading(0, 5, NO_POSITION), reading(1, 6, 40)]

    assert audit_group(placed, dependency(10, 12)).verdict is OrderingVerdict.POSSIBLE_VIOLATION
    assert audit_group([*placed, reading(2, 7, 41)], dependency(10, 12)).verdict is OrderingVerdict.VIOLATION
    assert audit_group([*placed, reading(2, 12, 41)], dependency(10, 12)).verdict is OrderingVerdict.INDETERMINATE


def test_a_reading_that_failed_takes_no_proof_away() -> None:
    """Where a later reading sees the destination not begun, it was not begun before that either."""
    series = [reading(0, 5, 0), GroupReading(observed_at_ms=1, is_known=False), reading(2, 12, 0), reading(3, 13, 1)]

    assert audit_group(series, dependency(10, 12)).verdict is OrderingVerdict.SAFE


def test_who_joins_behind_an_expansion_has_nothing_to_keep() -> None:
    """A group without a position after the settle time, whose first one is behind the fence: not applicable; before the
    settle time, or below the fence, it is judged."""
    away, joined = GroupReading(observed_at_ms=SETTLES_AT), reading(60, 12, 7)

    assert audit_group([away, joined], dependency(10, 12)).verdict is OrderingVerdict.NOT_APPLICABLE
    assert audit_group([away, joined], dependency(10, 13)).verdict is OrderingVerdict.INDETERMINATE
    early = GroupReading(observed_at_ms=SETTLES_AT - 1)
    assert audit_group([early, joined], dependency(10, 12)).verdict is OrderingVerdict.INDETERMINATE
    silent = GroupReading(observed_at_ms=SETTLES_AT, is_known=False)
    assert audit_group([silent, joined], dependency(10, 12)).verdict is OrderingVerdict.INDETERMINATE


def test_deleted_offsets_are_a_restart() -> None:
    """A position that is gone cuts the series as one that falls does, in source and destination."""
    series = [reading(0, 5, 0), reading(1, 6, 3), reading(2, 12, NO_POSITION), reading(3, 13, 1), reading(4, 13, 2)]

    assert audit_group(series[:2], dependency(10, 12)).verdict is OrderingVerdict.VIOLATION
    assert audit_group(series, dependency(10, 12)).verdict is OrderingVerdict.SAFE


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[GroupReading], AuditedDependency, bool | None]:
    """Readings of a group that walks through both partitions, and the truth since its last reset: was each record of
    the source from before the expansion done when it first got one of the destination from after it?"""
    low, true, high = sorted(draw(st.tuples(*[st.integers(0, 6)] * 3)))
    is_new = draw(st.booleans())
    own_low, own_true, own_high = (0, 0, 0) if is_new else sorted(draw(st.tuples(*[st.integers(0, 6)] * 3)))
    at, own, truth = 0, NO_POSITION if is_new else draw(st.integers(0, own_true)), None
    series = []
    steps = draw(st.lists(st.sampled_from(("source", "destination", "look", "blind", "place", "reset")), max_size=24))
    for number, step in enumerate(steps):
        at += step == "source"
        if step == "place" and own == NO_POSITION:
            own = draw(st.integers(0, 6))
        if step == "reset" and at > 0:
            at, truth = draw(st.integers(0, at - 1)), None
            series.append(reading(number, at, own))
        if step == "destination" and own != NO_POSITION:
            own += 1
            if truth is None and own > own_true:
                truth = at >= true
        if step in ("look", "blind"):
            series.append(reading(number, at if step == "look" else None, own if step == "look" else None))
    found = dependency(low, high, ExpansionFence(low=own_low, high=own_high))
    return series, found, truth


@given(lives())
def test_proofs_are_true(life: tuple[list[GroupReading], AuditedDependency, bool | None]) -> None:
    """R003-01: SAFE and VIOLATION are what happened, also of groups that were placed behind the first records."""
    series, own, truth = life
    verdict = audit_group(series, own).verdict

    if verdict is OrderingVerdict.SAFE:
        assert truth is not False
    if verdict is OrderingVerdict.VIOLATION:
        assert truth is not True


def test_a_start_offset_that_stands_rules_no_work_out() -> None:
    """R003-01: record 0 of the destination stays open while later ones are finished, so that a share group's start
    offset stands; then the source is finished, then the start offset moves. Safe is proven by state records alone that
    show no work up to then; work in them, and none at all, are no proof, with the reason."""
    series = [reading(at, source, own) for at, source, own in ((0, 5, 0), (1, 12, 0), (2, 12, 0), (3, 13, 4))]
    own = dependency(10, 12)

    def audited(work: RecordedWork | None, readings: int = 4) -> tuple[OrderingVerdict, OrderingReason | None]:
        found = audit_group(series[:readings], replace(own, work=work), at_once=False)
        return found.verdict, found.reason

    assert audited(None) == (OrderingVerdict.INDETERMINATE, OrderingReason.WORK_NOT_RECORDED)
    assert audited(None, 3) == (OrderingVerdict.NOT_STARTED, None)
    began = RecordedWork(at_ms=2 + CLOCKS_MS, is_first=True)
    assert audited(began) == (OrderingVerdict.SAFE, None)
    assert audited(replace(began, is_first=False)) == (
        OrderingVerdict.INDETERMINATE,
        OrderingReason.WORK_NOT_RECORDED,
    )
    early = replace(began, at_ms=CLOCKS_MS)
    assert audited(early) == (OrderingVerdict.INDETERMINATE, OrderingReason.WORK_RECORDED)
    assert audited(early, 3)[0] is not OrderingVerdict.NOT_STARTED
    assert audit_group(series, own).verdict is OrderingVerdict.SAFE  # committed progress is in order
    absent = [reading(at, 12, NO_POSITION) for at in (0, 1)]
    assert audit_group([*absent, *series[3:]], own, at_once=False).verdict is OrderingVerdict.SAFE


def test_a_known_reset_cuts_the_series() -> None:
    """R003-01: neither a destination that was reset forward nor a source that was reset back and has caught up between
    two readings is taken for progress, where the reset is known."""
    forward = [reading(0, 5, 2), reading(1, 6, 40)]
    assert audit_group(forward, dependency(10, 12)).verdict is OrderingVerdict.VIOLATION
    assert audit_group(forward, replace(dependency(10, 12), resets={2: 0})).verdict is not OrderingVerdict.VIOLATION
    caught_up = [reading(0, 12, 0), reading(1, 12, 3)]
    assert audit_group(caught_up, dependency(10, 12)).verdict is OrderingVerdict.SAFE
    assert audit_group(caught_up, replace(dependency(10, 12), resets={0: 0})).verdict is OrderingVerdict.INDETERMINATE
    later = replace(dependency(10, 12), resets={0: 1})
    assert audit_group(caught_up, later).verdict is OrderingVerdict.SAFE  # no reading is after that reset


@st.composite
def shared_lives(draw: st.DrawFn) -> tuple[list[GroupReading], AuditedDependency, bool | None]:
    """As `lives`, of a share group, which finishes records of the destination in any order."""
    low, true, high = sorted(draw(st.tuples(*[st.integers(0, 6)] * 3)))
    at, done, truth, work = 0, set[int](), None, None
    series = []
    for number, step in enumerate(draw(st.lists(st.sampled_from(("source", "destination", "look")), max_size=24))):
        at += step == "source"
        own = next(offset for offset in range(len(done) + 1) if offset not in done)
        if step == "destination":
            truth = at >= true if truth is None else truth
            work = number if work is None else work
            done.add(draw(st.integers(0, 3)))
        if step == "look":
            series.append(reading(number, at, own))
    known = None if work is None or draw(st.booleans()) else RecordedWork(at_ms=work + CLOCKS_MS, is_first=True)
    return series, replace(dependency(low, high), work=known), truth


@given(shared_lives())
def test_proofs_of_share_groups_are_true(life: tuple[list[GroupReading], AuditedDependency, bool | None]) -> None:
    """R003-01: SAFE and VIOLATION are what happened, whether or not state records show the work."""
    series, own, truth = life
    verdict = audit_group(series, own, at_once=False).verdict

    if verdict is OrderingVerdict.SAFE:
        assert truth is not False
    if verdict is OrderingVerdict.VIOLATION:
        assert truth is not True
