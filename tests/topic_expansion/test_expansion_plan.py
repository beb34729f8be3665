"""Plans of expansions: what is in them, what they refuse, and that an edited one is found out. Without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from definitions.dependencies import dependencies
from hypothesis import given
from hypothesis import strategies as st
from topic_expansion.expansion_scenes import a_group, a_plan, facts

from acktrail.errors import InputError, MalformedFile, PlanStale
from acktrail.group_changes.planning.plan_file import plan_json, write_text
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.topic_expansion.expansion_facts import FirstPosition
from acktrail.topic_expansion.expansion_plan import parse_expansion_plan, read_expansion_plan
from acktrail.topic_expansion.expansion_text import group_rows, key_lines, move_rows

HOSTILE = "g|`<b>\x1b[31m\n'; drop"


def rules(plan: Any) -> dict[str, str]:
    """Severity by rule."""
    return {notice.rule: notice.severity.value for notice in plan.notices}


@given(old=st.integers(1, 12), more=st.integers(1, 8), mapping=st.sampled_from(KeyMapping))
def test_a_plan_names_the_dependencies_of_the_model(old: int, more: int, mapping: KeyMapping) -> None:
    """Step and rows say the same as the model's list of pairs."""
    plan = a_plan(facts(partition_count=old), old + more, mapping=mapping)
    expected: dict[int, list[str]] = {}
    for each in dependencies(old, old + more, mapping):
        expected.setdefault(each.destination, []).append(str(each.source))

    found = {row[0]: row[1] for row in move_rows(plan) if row[1]}

    assert found == {destination: ", ".join(sources) for destination, sources in expected.items()}


@pytest.mark.parametrize(
    ("new_count", "words", "rule"),
    [
        (4, "1 of 2 keys move (50.0%), to new partitions alone", None),
        (3, "2 of 3 keys move (66.7%), to new partitions, and between", "keys_move_between_existing"),
    ],
)
def test_the_share_of_keys_and_a_count_that_is_no_multiple(new_count: int, words: str, rule: str | None) -> None:
    """An exact share; a warning with the nearest multiple where keys move between partitions that were there."""
    plan = a_plan(facts(), new_count)

    assert words in key_lines(plan)[0]
    assert [one.rule for one in plan.notices if one.rule == "keys_move_between_existing"] == ([rule] if rule else [])
    assert "with 4 they" in plan.notices[0].text if rule else True


@given(old=st.integers(1, 20), more=st.integers(1, 20))
def test_keys_move_between_existing_partitions_where_the_model_says_so(old: int, more: int) -> None:
    """The notice is there exactly where a dependency leads to a partition that was there before."""
    moves = any(each.destination < old for each in dependencies(old, old + more, KeyMapping.MURMUR2))
    plan = a_plan(facts(partition_count=old), old + more)

    assert ("keys_move_between_existing" in rules(plan), plan.keys.moves_between_existing) == (moves, moves)


@pytest.mark.parametrize(
    ("more", "new_count", "rule"),
    [
        ({}, 2, "not_more_partitions"),
        ({}, 1, "not_more_partitions"),
        ({}, 10_001, "too_many_partitions"),
        ({"is_internal": True}, 4, "internal_topic"),
        ({"may_alter": False}, 4, "unauthorized_topic"),
    ],
)
def test_what_may_not_be_done_is_refused_and_still_a_plan(more: dict[str, Any], new_count: int, rule: str) -> None:
    """The refusal stands first, and everything that is known is in the plan all the same."""
    plan = a_plan(facts(a_group(), **more), new_count)

    assert [one.rule for one in plan.refusals] == [rule]
    assert plan.notices[0].rule == rule
    assert plan.groups
    assert parse_expansion_plan(plan_json(plan), "x") == plan


@pytest.mark.parametrize(
    ("release", "group_type", "begins_at", "rule"),
    [
        ("4.3", "share", FirstPosition.LATEST, "skips_first_records"),
        ("4.3", "share", FirstPosition.UNKNOWN, "may_skip_first_records"),
        ("4.3", "share", FirstPosition.EARLIEST, None),
        ("4.4 or later", "share", FirstPosition.LATEST, None),
        ("4.4 or later", "consumer", FirstPosition.IN_CLIENTS, "may_skip_first_records"),
        ("4.3", "classic", FirstPosition.IN_CLIENTS, "may_skip_first_records"),
    ],
)
def test_groups_that_skip_first_records(release: str, group_type: str, begins_at: FirstPosition, rule: str) -> None:
    """Share groups at latest skip before 4.4; of other groups the clients decide."""
    plan = a_plan(facts(a_group(group_type=group_type, begins_at=begins_at), release=release), 4)

    assert [name for name in rules(plan) if "skip" in name] == ([rule] if rule else [])


def test_what_a_person_should_know() -> None:
    """The settle time, an unknown mapping, several partitions at once, open records of an ordered group."""
    busy = a_group(is_ordered=True, open_records=5)
    found = rules(a_plan(facts(busy, groups_not_asked=("lost",)), 4, mapping=KeyMapping.NONE))

    assert found == {
        "open_before_expansion": "serious",
        "unknown_key_mapping": "warning",
        "group_not_asked": "warning",
        "settle_time": "info",
        "several_at_once": "info",
    }
    assert "several_at_once" not in rules(a_plan(facts(), 3))
    found = {known: rules(a_plan(facts(is_compacted=known), 4)) for known in (True, False, None)}
    assert [found[known].get("old_values_stay") for known in (True, False, None)] == ["serious", None, None]


@pytest.mark.parametrize(
    ("groups", "seconds"),
    [
        ([], 420),
        ([a_group(open_records=10_000, records_per_s=10)], 1_000),
        ([a_group(open_records=10_001, records_per_s=10), a_group("b")], 1_001),
        ([a_group(open_records=10)], None),
        ([a_group(unknown=1)], None),
    ],
)
def test_when_it_would_be_safe(groups: list[Any], seconds: int | None) -> None:
    """After the settle time and the slowest group; not known where one pace is not known."""
    assert a_plan(facts(*groups), 4).safe_after_s == seconds
    assert a_plan(facts(*groups, groups_not_asked=("lost",)), 4).safe_after_s is None


def test_a_plan_comes_back_from_its_file_and_no_edit_passes(tmp_path: Path) -> None:
    """Any edit, an unknown version or a file of something else is refused, each with its reason."""
    plan = a_plan(facts(a_group(HOSTILE, open_records=3)), 4)
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
    from acktrail.cli.expand.expansion_plan_command import plan_text

    plan = a_plan(facts(a_group(HOSTILE, open_records=3, is_ordered=True)), 4)

    assert group_rows(plan)[0][0] == HOSTILE
    assert "\x1b" not in plan_text(plan)
    assert HOSTILE not in plan_text(plan)
