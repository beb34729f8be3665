"""Plans of expansions: what is in them, what they refuse, and that an edited one is found out. Without a broker."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from expansion.change.expansion_scenes import a_group, a_plan
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import InputError, MalformedFile, PlanStale
from acktrail.group_changes.planning.plan_file import plan_json, write_text
from acktrail_expansion.change.expansion_notices import refusals_of
from acktrail_expansion.change.expansion_plan import FirstPosition, parse_expansion_plan, read_expansion_plan
from acktrail_expansion.change.expansion_text import group_rows, key_line
from acktrail_expansion.cli.expansion_plan_command import plan_text
from acktrail_expansion.law.key_mapping import KeyMapping

HOSTILE = "g|`<b>\x1b[31m\n'; drop"


def rules(plan: Any) -> dict[str, str]:
    """Severity by rule."""
    return {notice.rule: notice.severity.value for notice in plan.notices}


@given(old=st.integers(1, 12), more=st.integers(1, 8), mapping=st.sampled_from(KeyMapping))
def test_a_plan_says_which_keys_move(old: int, more: int, mapping: KeyMapping) -> None:
    """The exact share of all hashes that move; remainders by the plan's step give the partitions between which they do;
    the notice that keys move between partitions that were there before is there exactly where one does."""
    plan, new = a_plan(old + more, old_count=old, mapping=mapping), old + more
    hashes = range(lcm(old, new))
    moves = [(h % old, h % new) for h in hashes if h % old != h % new]
    among_old = mapping is not KeyMapping.NONE and any(destination < old for _, destination in moves)
    assert (plan.moves_between_existing, "keys_move_between_existing" in rules(plan)) == (among_old, among_old)
    if mapping is not KeyMapping.NONE:
        assert plan.moving == str(Fraction(len(moves), len(hashes)))
        assert {each for each in product(range(old), range(new)) if (each[0] - each[1]) % plan.step == 0} == {
            (h % old, h % new) for h in hashes
        }
    else:
        assert plan.moving is None


def test_a_count_that_is_no_multiple_is_warned_of() -> None:
    """With the nearest multiple."""
    assert "1/2 of all keys move (50.0%), to new partitions alone" in key_line(a_plan(4))
    plan = a_plan(3)
    assert "2/3 of all keys move (66.7%), to new partitions and between" in key_line(plan)
    assert "with 4 they" in plan.notices[0].text


@pytest.mark.parametrize(
    ("new_count", "is_internal", "may_alter", "rule"),
    [
        (2, False, None, "not_more_partitions"),
        (1, False, True, "not_more_partitions"),
        (10_001, False, True, "too_many_partitions"),
        (4, True, True, "internal_topic"),
        (4, False, False, "unauthorized_topic"),
        (4, False, None, None),
    ],
)
def test_what_may_not_be_done(new_count: int, is_internal: bool, may_alter: bool | None, rule: str | None) -> None:
    """Each by its rule."""
    found = refusals_of("orders", 2, new_count, is_internal=is_internal, may_alter=may_alter)
    assert [each.rule for each in found] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("release", "group_type", "begins_at", "rule"),
    [
        ("4.3", "share", FirstPosition.LATEST, "skips_first_records"),
        ("4.3", "share", FirstPosition.UNKNOWN, "may_skip_first_records"),
        ("4.3", "share", FirstPosition.EARLIEST, None),
        ("4.4 or later", "share", FirstPosition.LATEST, None),
        ("4.4 or later", "share", FirstPosition.UNKNOWN, None),
        ("4.4 or later", "consumer", FirstPosition.IN_CLIENTS, "may_skip_first_records"),
        ("4.3", "classic", FirstPosition.IN_CLIENTS, "may_skip_first_records"),
    ],
)
def test_groups_that_skip_first_records(release: str, group_type: str, begins_at: FirstPosition, rule: str) -> None:
    """Share groups at latest skip before 4.4; of other groups the clients decide."""
    plan = a_plan(4, a_group(group_type=group_type, begins_at=begins_at), release=release)

    assert [name for name in rules(plan) if "skip" in name] == ([rule] if rule else [])


def test_what_a_person_should_know() -> None:
    """The settle time with what it assumes, an unknown mapping, open records of an ordered group, old values."""
    busy = a_group(is_ordered=True, open_records=5)
    plan = a_plan(4, busy, groups_not_asked=("lost",), mapping=KeyMapping.NONE)

    assert rules(plan) == {
        "open_before_expansion": "serious",
        "unknown_key_mapping": "warning",
        "group_not_asked": "warning",
        "settle_time": "info",
    }
    assert "of every producer are less than 420 s together (ACKTRAIL_SETTLE)" in plan_text(plan)
    found = {known: rules(a_plan(4, is_compacted=known)) for known in (True, False, None)}
    assert [found[known].get("old_values_stay") for known in (True, False, None)] == ["serious", None, None]


def test_a_plan_comes_back_from_its_file_and_no_edit_passes(tmp_path: Path) -> None:
    """Any edit, an unknown version or a file of something else is refused, each with its reason."""
    plan = a_plan(4, a_group(HOSTILE, open_records=3))
    file = tmp_path / "plan.json"
    write_text(plan_json(plan), file)
    assert read_expansion_plan(file) == plan
    data = json.loads(plan_json(plan))
    edits: list[tuple[dict[str, Any], type[InputError]]] = [
        ({"new_count": 8}, PlanStale),
        ({"topic_id": "other"}, PlanStale),
        ({"version": 2}, PlanStale),
        ({"new_count": "8"}, InputError),
        ({"format": "acktrail-reset-plan"}, MalformedFile),
        ({"more": 1}, InputError),
    ]
    for edit, kind in edits:
        with pytest.raises(kind):
            parse_expansion_plan(json.dumps({**data, **edit}), "edited")
    for text in ("", "[]", "null", "{"):
        with pytest.raises(MalformedFile):
            parse_expansion_plan(text, "odd")


def test_the_text_of_a_hostile_group_is_harmless() -> None:
    """Rows have the name as it is; the printed plan has it escaped."""
    plan = a_plan(4, a_group(HOSTILE, open_records=3, is_ordered=True))

    assert group_rows(plan)[0][0] == HOSTILE
    assert "\x1b" not in plan_text(plan)
    assert HOSTILE not in plan_text(plan)
