"""The plan of a migration, without a broker: what is asked for, what it says, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from change.scenes import a_plan, a_snapshot, group_facts, partition_facts
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.change_kind import parse_plan
from acktrail.change.collection.facts import PartitionFacts, TargetOffset
from acktrail.change.planning.change_plan import plan_json
from acktrail.change.request.reset_request import OutOfRange, ResetRequest
from acktrail.cli.change.change_text import plan_text
from acktrail.errors import ChangeRefused
from acktrail_plugins.migration.migration_kind import (
    MIGRATION,
    Migration,
    MigrationPlan,
    TranslationWay,
    parse_migration,
)
from acktrail_plugins.migration.mirror_evidence import SourceOffset, TranslatedOffset, Translations
from acktrail_plugins.migration.plan_migration import carry, with_carried
from acktrail_plugins.migration.source_states import CarriedState, SourcePartition, SourceStates

SAME = {"way": "same", "groups": ["g"]}


def request(**changes: Any) -> tuple[ResetRequest, Migration]:
    return parse_migration({**SAME, **changes}, asks_source=False)


def carried(start: int | None = 40, **changes: Any) -> CarriedState:
    found = CarriedState(
        topic="orders",
        topic_id="x",
        start_offset=start,
        acknowledged=3,
        archived=1,
        in_flight=2,
        passed=0,
        passed_most=0,
    )
    return replace(found, **changes)


def facts(offset: int | None, log: tuple[int, int] = (10, 100)) -> PartitionFacts:
    """A share partition that the target's group does not have, and the offset that is to be carried there."""
    found = TargetOffset(offset=offset, reason=None if offset is not None else "no pair")
    return partition_facts(None, log, state=None, is_described=False, start_offset=None, given=found)


def plan(*rows: tuple[PartitionFacts, CarriedState], **changes: Any) -> MigrationPlan:
    group = group_facts(error_code=69, state=None, group_epoch=None)
    asked, migration = request(**changes)
    numbered = [replace(row, partition=index) for index, (row, _) in enumerate(rows)]
    made = a_plan(asked, a_snapshot(*numbered, groups=(group,)))
    states = {(row.topic, row.partition): (row.given, state) for row, (_, state) in zip(numbered, rows, strict=True)}
    return with_carried(made, migration, {made.group_ids[0]: states})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"way": "guess"}, "no_translation"),
        ({"way": None}, "no_translation"),
        ({"way": "timestamp"}, "source_needed"),
        ({"way": "mm2"}, "no_mirror_topic"),
        ({"offset_syncs": "mm2-offset-syncs.eu.internal"}, "two_translations"),
        ({"topic_map": ["orders"]}, "bad_topic_map"),
        ({"topic_map": ["=orders"]}, "bad_topic_map"),
        ({"topic_map": ["a=b", "a=c"]}, "bad_topic_map"),
        ({"topic_map": ["a=c", "b=c"]}, "bad_topic_map"),
        ({"groups": []}, "no_group"),
        ({"all_groups": True}, "two_group_choices"),
        ({"topics": ["orders:0", "orders:0"]}, "duplicate_partition"),
        ({"out_of_range": "wrap"}, "bad_out_of_range"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], rule: str) -> None:
    """Before any cluster or table is read, with the rule's name."""
    with pytest.raises(ChangeRefused) as refused:
        request(**changes)
    assert refused.value.rule == rule


def test_topics_are_renamed() -> None:
    """By the map, else by the prefix, else not at all."""
    _, asked = request(topic_map=["a=b"], topic_prefix="eu.")
    assert [asked.target_topic(name) for name in ("a", "b")] == ["b", "eu.b"]
    assert Migration(way=TranslationWay.SAME).target_topic("a") == "a"


@given(
    offset=st.one_of(st.none(), st.integers(0, 130)),
    log=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))),
    clamp=st.booleans(),
)
def test_a_target_is_the_translated_offset_or_refused(offset: int | None, log: tuple[int, int], clamp: bool) -> None:
    """Within the log it is taken as it is; outside it is refused, or with --out-of-range clamp the nearest end."""
    made = plan((facts(offset, log), carried()), **({"out_of_range": OutOfRange.CLAMP} if clamp else {}))
    (row,), rules = made.partitions, {notice.rule for notice in made.refusals}
    if offset is None:
        assert (row.target_offset, rules) == (None, {"no_offset_given"})
    elif log[0] <= offset <= log[1]:
        assert (row.target_offset, rules) == (offset, set())
    elif clamp:
        assert (row.target_offset, rules) == (min(max(offset, log[0]), log[1]), set())
        assert (made.carried[0].delivered_again is None) == (offset < log[0])
    else:
        assert (row.target_offset, rules) == (None, {"out_of_range"})


def test_sums_are_of_what_is_carried() -> None:
    """Refused share partitions are not in them; where one number is not known the sum is not, its bound is."""
    open_ = carried(passed=None, passed_most=5, reason="why")
    made = plan((facts(40), carried()), (facts(30), open_), (facts(None), carried()))
    assert made.kind == "migration"
    found = {notice.rule for notice in made.notices if notice.partition == 1}
    assert found == {"archived_not_carried", "acknowledgements_not_carried", "passed_not_known", "passed_before"}
    text = MIGRATION.text(made)
    assert "finished on the source, delivered again: <=13 (not known exactly of 1)" in text
    assert "refused" in text
    assert re.findall(r": +(\S+)", text)[-5:] == ["2", "<=13", "6", "2", "4"]
    sums = [line.rsplit(":", 1) for line in plan_text(made).splitlines() if re.search(r": +\d+$", line)]
    labels = [label.strip() for label, _ in sums]
    assert len(labels) == len(set(labels)) > 5, "no label stands for two numbers"


def test_a_plan_is_read_back_as_it_was_written() -> None:
    """With everything that a migration adds."""
    made = plan((facts(40), carried()), topic_map=["orders=neworders"], at_ms=1_700_000_000_000)
    assert parse_plan(plan_json(made), "a file") == made


def states(*parts: tuple[str, str, CarriedState]) -> SourceStates:
    found = (
        SourcePartition(group_id=group, partition=0, recorded_start=0, carried=replace(state, topic=topic, passed=None))
        for group, topic, state in parts
    )
    return SourceStates(cluster_id="old", partitions=tuple(found), partition_counts={}, notices=())


def test_every_share_partition_has_an_offset_or_a_reason() -> None:
    """That of its group's start offset, under the target's name; two topics may not become one."""
    translations: Translations = {
        SourceOffset(topic="a", partition=0, offset=40): TranslatedOffset(offset=44, passed_most=0),
        SourceOffset(topic="a", partition=0, offset=50): TranslatedOffset(offset=48, passed_most=7),
        SourceOffset(topic="b", partition=0, offset=40): "no pair",
    }
    migration = Migration(way=TranslationWay.MM2, topic_prefix="eu.")
    unknown = carried(None, reason="a gap")
    found = carry(
        states(("g", "a", carried()), ("h", "a", carried(50)), ("g", "b", carried()), ("g", "c", unknown)),
        translations,
        migration,
    )
    assert {(group, place): own.offset for group, parts in found.items() for place, (own, _) in parts.items()} == {
        ("g", ("eu.a", 0)): 44,
        ("h", ("eu.a", 0)): 48,
        ("g", ("eu.b", 0)): None,
        ("g", ("eu.c", 0)): None,
    }
    assert [found["g"][name, 0][0].reason for name in ("eu.a", "eu.b", "eu.c")] == [None, "no pair", "a gap"]
    exact, bounded = found["g"]["eu.a", 0][1], found["h"]["eu.a", 0][1]
    assert (exact.delivered_again, bounded.delivered_again, bounded.delivered_again_most) == (4, None, 11)
    twice = states(("g", "a", carried()), ("g", "b", carried()))
    with pytest.raises(ChangeRefused, match="two_topics_one_name"):
        carry(twice, translations, Migration(way=TranslationWay.SAME, topic_map=(("a", "b"),)))
