"""Expansions and fences out of looks: nothing is called a fence that is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from acktrail_expansion.audit.found_expansions import TopicExpansion, TopicLooks, find_expansions
from acktrail_expansion.audit.group_verdicts import destinations
from acktrail_expansion.law.order import FenceGap

SETTLE = 10
COLUMNS = ("log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
GAP = FenceGap
Look = tuple[int, Sequence[int | None], str, int, tuple[int, int, int]]
"""Instant, log ends, consistency, how much later every broker had listed the topic, and epochs of partition 0."""


def look(at: int, *ends: int | None, said: str = "", later: int = 0, epochs: tuple[int, int, int] = (3, 2, 1)) -> Look:
    return at, ends, said or ("partial" if None in ends else "consistent"), later, epochs


def found(looks: Sequence[Look]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    at = np.array([each[0] for each in looks])
    own = TopicLooks(
        topic="topic",
        newest_run="run",
        at=at,
        listed=at + [each[3] for each in looks],
        count=np.array([len(each[1]) for each in looks]),
        is_sound=np.array([each[2] != "straddles" for each in looks]),
        is_whole=np.array([each[2] == "consistent" for each in looks]),
        is_gapless=True,
    )
    logs = {("t", at): {0: dict(zip(COLUMNS, (ends[0], *epochs), strict=True))} for at, ends, _, _, epochs in looks}
    return list(find_expansions("c", {"t": own}, lambda _: logs, SETTLE, ()))


OLD, STRADDLES = look(0, 5), look(5, 9, 0, said="straddles")


@pytest.mark.parametrize(
    ("looks", "settles_at", "fence"),
    [
        ([look(0, 4), look(3, 5), look(5, 9, 0), look(14, 9, 1), look(15, 12, 2), look(30, 20, 3)], 15, (5, 12, None)),
        ([look(0, 5, said="straddles"), look(5, 9, 0), look(20, 10, 1)], 15, (None, 10, GAP.NOT_SEEN_BEFORE)),
        ([OLD, look(5, 4, 0), look(20, 10, 1)], 15, (None, None, GAP.TRUNCATED)),
        ([OLD, look(2, None), look(5, 7, 0), look(20, None, 1), look(21, 12, 1)], 15, (5, 12, None)),
        ([OLD, look(5, 7, 0), look(20, None, 1)], 15, (5, None, GAP.NOT_SEEN_AFTER)),
        ([OLD, look(5, 7, 0)], 15, (5, None, GAP.SETTLING)),
        ([OLD, STRADDLES, look(15, 10, 1), look(25, 12, 2)], 25, (5, 12, None)),
        ([OLD, STRADDLES, look(15, 10, 1, later=2), look(25, 12, 2), look(27, 13, 2)], 27, (5, 13, None)),
        ([OLD, STRADDLES, look(50, 10, 1, said="straddles")], None, (5, None, GAP.SETTLING)),
        ([OLD, STRADDLES, look(15, 10, 1, 0)], 25, (5, None, GAP.SETTLING)),
        ([OLD, look(9, 9, 0, epochs=(4, 3, 8)), look(20, 12, 1, epochs=(4, 3, 8))], 19, (5, 12, None)),
        ([OLD, look(9, 9, 0, epochs=(4, 3, 4)), look(20, 12, 1, epochs=(4, 3, 4))], 19, (None, None, GAP.TRUNCATED)),
        ([OLD, look(9, 9, 0, epochs=(5, 4, 8)), look(20, 12, 1, epochs=(6, 3, 8))], 19, (5, 12, None)),
        ([OLD, look(9, 9, 0, epochs=(5, 4, 8))], 19, (None, None, GAP.LEADERS_CHANGED)),
        ([OLD, look(5, 9, 0), look(6, 10), look(8, 11, 0), look(20, 12, 1)], 15, (5, 12, None)),
    ],
)
def test_a_fence(looks: list[Look], settles_at: int | None, fence: tuple[Any, ...]) -> None:
    """R003-09: the low end is the last with the old count, the high one the first after the settle time, which begins
    when every broker has listed the new count, or a higher one. A look that straddles the change shows neither that
    nor a low end. Where the epochs show that records were lost, or may have been, there is none. A count that falls, by
    a broker with old metadata, changes nothing."""
    (row, [own]), *_ = found(looks)

    assert (row["old_count"], row["new_count"], row["settles_at"]) == (1, 2, settles_at)
    assert (own["fence_low"], own["fence_high"], own["reason"]) == fence
    is_settled = settles_at is not None and looks[-1][0] >= settles_at
    assert row["status"] == ("settled" if is_settled else "settling")


def test_two_expansions_are_more_than_each_of_them() -> None:
    """R003-02: from 4 to 6 to 9, hash 28 is in 0, then 4, then 1: partition 1 depends on 0 through 4, and no dependency
    of the second expansion says so."""
    rows = (
        {"old_count": old, "new_count": new, "key_mapping": "murmur2", "is_single": True}
        for old, new in ((4, 6), (6, 9))
    )
    own = [TopicExpansion(row=row, fences=[], is_gapless=True) for row in rows]
    [to] = [each for each in destinations(own) if (each.event, each.partition) == (1, 1)]

    assert (to.direct, to.earlier) == ([(1, 4)], [(0, 0), (0, 2), (0, 3)])
