"""Plans of expansions: what is in them, and that an edited one is found out. Without a broker."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

import pytest
from expansion.change.expansion_scenes import HOSTILE, a_group, a_plan
from hypothesis import given
from hypothesis import strategies as st

from acktrail.cli.change.change_text import plan_text
from acktrail_expansion.change.expansion_kind import key_line
from acktrail_expansion.law.order import KeyMapping


def rules(plan: Any) -> dict[str, str]:
    """Severity by rule."""
    return {notice.rule: notice.severity.value for notice in plan.notices}


@given(old=st.integers(1, 12), more=st.integers(1, 8), mapping=st.sampled_from(KeyMapping))
def test_a_plan_says_which_keys_move(old: int, more: int, mapping: KeyMapping) -> None:
    """The exact share of all hashes that move, and the step, which is the greatest common divisor of the counts; the
    notice that keys move between partitions that were there before is there exactly where one does, with the next
    count for which none does."""
    plan, new = a_plan(old + more, old_count=old, mapping=mapping), old + more
    hashes = range(lcm(old, new))
    moves = [(h % old, h % new) for h in hashes if h % old != h % new]
    among_old = mapping is not KeyMapping.NONE and any(destination < old for _, destination in moves)
    assert (plan.moves_between_existing, "keys_move_between_existing" in rules(plan)) == (among_old, among_old)
    if among_old:
        nearest = next(count for count in range(new, new + old) if count % old == 0)
        assert f"with {nearest} they" in next(each.text for each in plan.notices if "with" in each.text)
    if mapping is KeyMapping.NONE:
        assert (plan.moving, rules(plan)) == (None, {"unknown_key_mapping": "warning"})
    else:
        assert plan.moving == str(Fraction(len(moves), len(hashes)))
        assert f"{plan.moving} of all keys move" in key_line(plan)
        assert plan.step == old * new // len(hashes)


@pytest.mark.parametrize(
    ("release", "group_type", "begins_at", "rule"),
    [
        ("4.3", "share", "latest", "skips_first_records"),
        ("4.3", "share", None, "may_skip_first_records"),
        ("4.3", "share", "earliest", None),
        ("4.4 or later", "share", "latest", None),
        ("4.4 or later", "share", None, None),
        ("4.4 or later", "consumer", None, "may_skip_first_records"),
    ],
)
def test_groups_that_skip_first_records(release: str, group_type: str, begins_at: str | None, rule: str) -> None:
    """Share groups at latest skip before 4.4; of other groups the clients decide."""
    plan = a_plan(4, a_group(group_type=group_type, begins_at=begins_at), release=release)
    assert [*rules(plan)] == ([rule] if rule else [])


def test_what_a_person_should_know() -> None:
    """Open records of an ordered group, old values that stay, a group that was not asked. What is not shown one by one
    is counted. A hostile name is escaped where it is printed."""
    busy = a_group(HOSTILE, is_ordered=True, open_records=7, most_open=((3, 4), (1, 2)))
    plan = a_plan(4, busy, groups_not_asked=("lost",), is_compacted=True)
    found = {"open_before_expansion": "serious", "old_values_stay": "serious", "group_not_asked": "warning"}
    assert rules(plan) == found
    assert "3: 4, 1: 2, others: 1" in plan_text(plan)
    assert all(line.isprintable() for line in plan_text(plan).split("\n"))
