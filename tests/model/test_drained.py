"""The law of "drained": each line of its table is a case."""

from __future__ import annotations

import pytest

from acktrail.model.drained import Begin, DeliveryFacts, Left, left_in_group, left_in_partition

LATEST, EARLIEST, BY_DURATION, UNKNOWN = Begin
FULL = {"log_start": 3, "log_end": 10}


@pytest.mark.parametrize(
    ("facts", "at_most", "reason"),
    [
        (DeliveryFacts(start_offset=3, lag=0, **FULL), 0, "lag 0"),
        (DeliveryFacts(start_offset=3, lag=0), 0, "lag 0"),
        (DeliveryFacts(start_offset=50, lag=-40, **FULL), 0, "behind the end"),
        (DeliveryFacts(start_offset=50, lag=-40), 0, "behind the end"),
        (DeliveryFacts(start_offset=11, lag=None, **FULL), 0, "behind the end"),
        (DeliveryFacts(start_offset=10, lag=None, **FULL), 0, "behind the end"),
        (DeliveryFacts(start_offset=4, lag=5, **FULL), 5, "lag 5"),
        (DeliveryFacts(start_offset=4, lag=5), 5, "lag 5"),
        (DeliveryFacts(start_offset=0, lag=9, **FULL), 7, "lag 9, with 3 offsets that retention removed"),
        (DeliveryFacts(start_offset=0, lag=2, **FULL), 2, "lag 2, with 3 offsets that retention removed"),
        (DeliveryFacts(start_offset=4, lag=None, **FULL), None, "reports no lag"),
        (DeliveryFacts(start_offset=4, lag=None), None, "reports no lag"),
        (DeliveryFacts(start_offset=4, lag=6, log_start=10, log_end=10), 0, "empty"),
        (DeliveryFacts(log_start=0, log_end=0), 0, "empty"),
        (DeliveryFacts(log_start=7, log_end=7, begin=EARLIEST, is_added=True), 0, "empty"),
        (DeliveryFacts(begin=LATEST, has_members=False), None, "ends of its log"),
        (DeliveryFacts(begin=LATEST, has_members=False, log_end=5), None, "ends of its log"),
        (DeliveryFacts(begin=EARLIEST, **FULL), 7, "earliest"),
        (DeliveryFacts(begin=EARLIEST, has_members=False, **FULL), 7, "earliest"),
        (DeliveryFacts(begin=LATEST, has_members=False, **FULL), 0, "latest"),
        (DeliveryFacts(begin=LATEST, has_members=False, is_added=True, **FULL), 7, "added"),
        (DeliveryFacts(begin=LATEST, first_young=10, **FULL), 0, "too old"),
        (DeliveryFacts(begin=LATEST, first_young=9, **FULL), None, "may hold"),
        (DeliveryFacts(begin=LATEST, **FULL), None, "times"),
        (DeliveryFacts(begin=BY_DURATION, first_young=10, has_members=False, **FULL), 0, "too old"),
        (DeliveryFacts(begin=BY_DURATION, first_young=6, has_members=False, **FULL), 4, "within by_duration"),
        (DeliveryFacts(begin=BY_DURATION, has_members=False, **FULL), None, "times"),
        (DeliveryFacts(begin=UNKNOWN, has_members=False, **FULL), None, "grant DESCRIBE_CONFIGS"),
    ],
)
def test_left_in_a_share_partition(facts: DeliveryFacts, at_most: int | None, reason: str) -> None:
    """What is left at most, or not known, and the reason says why."""
    left = left_in_partition(facts)
    assert left.at_most == at_most
    assert reason in left.reason
    assert left.is_drained == (at_most == 0)


@pytest.mark.parametrize(
    ("partitions", "unseen", "at_most", "reason"),
    [
        ([0, 0], (), 0, "drained: nothing is left in 2 share partitions"),
        ([0, 2, 5], (), 7, "at most 7 offsets left in 2 of 3 share partitions: t-2: r5, t-1: r2"),
        ([0, None, 5], (), None, "not known: t-1: rNone"),
        ([0, 0], ("u: no leader",), None, "not known: u: no leader"),
        ([], (), None, "no topic"),
        ([None] * 5, (), None, "not known: t-0: rNone, t-1: rNone, t-2: rNone, and 2 more"),
    ],
)
def test_left_in_a_group(
    partitions: list[int | None], unseen: tuple[str, ...], at_most: int | None, reason: str
) -> None:
    """One share partition that is not known, or a topic that could not be looked at, makes the group not known; a group
    without a topic is not drained."""
    lefts = {f"t-{index}": Left(number, f"r{number}") for index, number in enumerate(partitions)}
    left = left_in_group(lefts, unseen)
    assert left.at_most == at_most
    assert reason in left.reason
