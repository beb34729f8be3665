"""From the positions of a group to a verdict: a proof holds in every life that fits the readings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.model.expansion.group_series import NO_POSITION, AuditedDependency, GroupReading, audit_group
from acktrail.model.expansion.ordering import ExpansionFence, OrderingVerdict

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
