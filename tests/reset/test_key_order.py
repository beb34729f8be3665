"""What a plan means for the order of keys across expansions: refused, warned of, or done in phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from definitions.dependencies import dependencies
from hypothesis import given
from hypothesis import strategies as st
from reset.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts
from samples.golden_vectors import SEED

from acktrail.group_changes.collection.changes_since_plan import order_since_plan
from acktrail.group_changes.collection.facts import (
    ExpansionFacts,
    FencedPartition,
    PartitionFacts,
    Snapshot,
    TargetOffset,
    TopicExpansions,
)
from acktrail.group_changes.planning.notices import Severity
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.planning.plan_file import parse_plan, plan_json
from acktrail.group_changes.request.reset_request import KeyOrder, ResetRequest, StrategyKind
from acktrail.model.delivery import StateBatch
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.reset_order import ResetOrdering

END = 1_000
RULES = {"REJECT": "order_broken", "UNCERTAIN": "order_uncertain", "WARN_NEEDS_GATE": "order_needs_phases"}


def expansion(
    old_count: int, new_count: int, fences: Mapping[int, tuple[int | None, int | None]], **changes: Any
) -> ExpansionFacts:
    facts = ExpansionFacts(
        event_id="e1",
        old_count=old_count,
        new_count=new_count,
        key_mapping=KeyMapping.MURMUR2,
        is_single=True,
        fences=tuple(FencedPartition(partition=q, low=low, high=high) for q, (low, high) in sorted(fences.items())),
    )
    return replace(facts, **changes)


DOUBLED = expansion(2, 4, {0: (100, 120), 1: (200, 220)})


def snapshot(
    targets: Mapping[int, int],
    positions: Mapping[int, int | None],
    *expansions: ExpansionFacts,
    batches: Mapping[int, StateBatch] | None = None,
    **changes: Any,
) -> Snapshot:
    """The group at `positions`; partitions with a target are in the request, the others stay."""

    def facts(partition: int) -> PartitionFacts:
        found = (batches[partition],) if batches and partition in batches else ()
        row = partition_facts(positions[partition], (0, END), found, partition=partition, partition_count=count)
        given = TargetOffset(offset=targets.get(partition), topic_id=TOPIC.topic_id)
        return replace(row, given=given if partition in targets else TargetOffset())

    count = expansions[-1].new_count if expansions else len(positions)
    return a_snapshot(
        *map(facts, sorted(targets)),
        topics=(replace(TOPIC, partition_count=count),),
        expansions={"orders": TopicExpansions(expansions=expansions)},
        staying=tuple(facts(partition) for partition in sorted(positions) if partition not in targets),
        **changes,
    )


def request(**changes: Any) -> ResetRequest:
    kind = changes.pop("kind", StrategyKind.FROM_FILE)
    return a_request(kind, **{"allow_skip": True, **changes})


def plan(
    targets: Mapping[int, int],
    positions: Mapping[int, int | None],
    *expansions: ExpansionFacts,
    changes: Mapping[str, Any] | None = None,
    **asked: Any,
) -> ResetPlan:
    return a_plan(request(**asked), snapshot(targets, positions, *expansions, **(changes or {})))


def order_rules(made: ResetPlan) -> dict[str, Severity]:
    return {each.rule: each.severity for each in made.notices if each.rule in RULES.values()}


def texts(made: ResetPlan, rule: str) -> list[str]:
    return [each.text for each in made.notices if each.rule == rule]


def four(at: int = END) -> dict[int, int | None]:
    return dict.fromkeys(range(4), at)


@pytest.mark.parametrize("ordering", [None, *KeyOrder])
@pytest.mark.parametrize("case", SEED["kip253"]["reset_cases"], ids=lambda case: case["verdict"])
def test_the_vectors_of_resets_through_the_planner(case: dict[str, Any], ordering: KeyOrder | None) -> None:
    """R003-05: strict refuses what is rejected or uncertain, else each is a warning; what is accepted has no notice."""
    known = expansion(case["n_old"], case["n_new"], {int(q): (at, at) for q, at in case["fence"].items()})
    targets = {int(p): at for p, at in case["targets"].items()}
    made = plan(targets, dict.fromkeys(range(case["n_new"]), END), known, ordering=ordering)

    verdict = case["verdict"]
    is_refused = ordering is KeyOrder.STRICT and verdict in ("REJECT", "UNCERTAIN")
    severity = Severity.REFUSAL if is_refused else Severity.WARNING
    assert order_rules(made) == ({} if verdict == "ACCEPT" else {RULES[verdict]: severity})
    assert made.orders is not None
    assert made.orders[0].order is ResetOrdering[verdict]
    assert bool(made.executable(partial=True)) != is_refused
    assert parse_plan(plan_json(made), "f") == made


def test_the_positions_that_stay_count() -> None:
    """Only partition 0 is reset: the destination stays where the group is, begun, or with a record delivered beyond
    its start offset; at its beginning it only has to wait."""
    rejected = plan({0: 50}, {**four(), 2: 7}, DOUBLED)
    assert order_rules(rejected) == {"order_broken": Severity.WARNING}
    assert texts(rejected, "order_broken") == [
        "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it"
    ]
    assert order_rules(plan({0: 50}, {**four(), 2: 0}, DOUBLED)) == {"order_needs_phases": Severity.WARNING}
    gone_on = {2: StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)}
    assert order_rules(plan({0: 50}, {**four(), 2: 0}, DOUBLED, changes={"batches": gone_on})) == {
        "order_broken": Severity.WARNING
    }
    assert order_rules(plan({0: 50}, {**four(), 2: None}, DOUBLED)) == {"order_needs_phases": Severity.WARNING}, (
        "a new partition without a start offset is not begun"
    )
    assert order_rules(plan({2: 5}, {**four(), 0: None}, DOUBLED)) == {"order_uncertain": Severity.WARNING}, (
        "where the group begins with a source is not known"
    )


def test_what_the_reset_does_not_touch_is_no_reason() -> None:
    """A group that is behind a fence already may have another partition reset without a word about it."""
    assert order_rules(plan({3: 20}, {0: 50, 1: END, 2: 7, 3: 9}, DOUBLED)) == {}


def test_to_the_end_of_everything_is_accepted_with_any_ledger() -> None:
    """To the latest of all partitions: no fence is known, or not yet, and the ledger lacks an expansion."""
    settling = replace(DOUBLED, fences=(FencedPartition(partition=0, low=100, high=None),))
    lacking = replace(DOUBLED, event_id=None, fences=())
    for known in (DOUBLED, settling, lacking):
        found = snapshot(dict.fromkeys(range(4), 0), four(3), known)
        made = a_plan(request(kind=StrategyKind.TO_LATEST, ordering=KeyOrder.STRICT), found)
        assert order_rules(made) == {}
        assert not made.refusals


def test_to_a_time_before_the_expansion_takes_a_new_partition_to_its_beginning() -> None:
    """The first record at or after the time is the first of the new partition: it has to wait, and is not begun."""
    found = snapshot({0: 0, 1: 0, 2: 0, 3: 0}, four(), DOUBLED)
    at = {0: 40, 1: 60, 2: 0, 3: 0}
    rows = tuple(replace(row, offset_at=at[row.partition]) for row in found.partitions)
    made = a_plan(request(kind=StrategyKind.TO_DATETIME), replace(found, partitions=rows))
    assert {row.partition: row.target_offset for row in made.partitions} == at
    assert order_rules(made) == {"order_needs_phases": Severity.WARNING}


def test_groups_that_rely_on_order_are_strict_unless_asked_otherwise() -> None:
    """The configuration decides for each group; --ordering wins."""
    ordered = {"changes": {"ordered": frozenset({"g"})}}
    positions = {**four(), 2: 7}
    assert order_rules(plan({0: 50}, positions, DOUBLED, **ordered)) == {"order_broken": Severity.REFUSAL}
    warned = plan({0: 50}, positions, DOUBLED, ordering=KeyOrder.WARN, **ordered)
    assert order_rules(warned) == {"order_broken": Severity.WARNING}
    other = plan({0: 50}, positions, DOUBLED, changes={"ordered": frozenset({"h"})})
    assert order_rules(other) == {"order_broken": Severity.WARNING}


def test_what_is_not_known_is_said() -> None:
    """No ledger, and an expansion that may be two: from 2 to 3 to 4 partition 3 follows partition 0, too, so that a
    reset of it that leaves 3 alone is uncertain, refused where order counts, and waits where phases are asked for."""
    perhaps = replace(DOUBLED, is_single=False)
    kept = {**four(), 2: 0}
    assert order_rules(plan({0: 50}, kept, DOUBLED)) == {"order_needs_phases": Severity.WARNING}
    made = plan({0: 50}, kept, perhaps)
    assert order_rules(made) == {"order_needs_phases": Severity.WARNING, "order_uncertain": Severity.WARNING}
    assert [each.severity for each in made.notices if each.rule == "expansion_not_single"] == [Severity.WARNING]
    assert plan({0: 50}, kept, perhaps, ordering=KeyOrder.STRICT).refusals
    broken = plan({0: 50}, {**four(), 2: 7}, perhaps)
    assert order_rules(broken) == {"order_broken": Severity.WARNING, "order_uncertain": Severity.WARNING}
    phased = plan(dict.fromkeys(range(4), 0), four(), perhaps, phases=True)
    assert phased.orders is not None
    assert [(each.partition, each.sources) for each in phased.orders[0].waiting] == [(2, (0, 1)), (3, (0, 1))]
    assert not texts(plan(dict.fromkeys(range(4), 0), four(), DOUBLED), "expansion_not_single")
    without = replace(snapshot({0: 5}, {0: 50, 1: 50}), expansions={"orders": TopicExpansions(reason="no tables")})
    for ordering, severity in ((None, Severity.INFO), (KeyOrder.STRICT, Severity.WARNING)):
        found = [each for each in a_plan(request(ordering=ordering), without).notices if "no tables" in each.text]
        assert [(each.rule, each.severity) for each in found] == [("expansions_unknown", severity)]


def test_the_first_phase_sets_the_sources_and_the_second_the_rest() -> None:
    """2 and 3 wait at the ends of their logs; once 0 and 1 are finished they are set to where they begin."""
    wanted = {0: 10, 1: 20, 2: 0, 3: 0}
    first = plan(wanted, {**four(), 2: 500}, DOUBLED, phases=True, ordering=KeyOrder.STRICT, allow_skip=False)
    assert {row.partition: row.target_offset for row in first.partitions} == {0: 10, 1: 20, 2: END, 3: END}
    assert order_rules(first) == {}
    assert not first.refusals, "records that wait are not skipped"
    (text,) = texts(first, "waits")
    assert "partitions 2, 3 set to the end of the log until partitions 0, 1 are finished" in text
    assert "no guarantee" in text
    assert first.orders is not None
    assert [(each.partition, each.offset, each.sources) for each in first.orders[0].waiting] == [
        (2, 0, (0,)),
        (3, 0, (1,)),
    ]

    again = {"kind": StrategyKind.NEXT_PHASE}
    early = plan({2: 0, 3: 0}, {0: 119, 1: 220, 2: END, 3: END}, DOUBLED, **again)
    assert [(each.rule, each.partition) for each in early.refusals] == [("phase_not_reached", 2)]
    assert [row.partition for row in early.executable(partial=True)] == [3]
    second = plan({2: 0, 3: 0}, {0: 120, 1: 220, 2: END, 3: END}, DOUBLED, ordering=KeyOrder.STRICT, **again)
    assert not second.refusals
    assert not texts(second, "waits")
    assert {row.partition: row.target_offset for row in second.partitions} == {2: 0, 3: 0}


def test_phases_where_none_is_needed_or_none_helps() -> None:
    """Nothing waits where the reset is accepted; where keys move between partitions that were there before, the plan
    says that nothing can wait alone."""
    accepted = plan({0: 300, 1: 300, 2: 5, 3: 5}, four(), DOUBLED, phases=True)
    assert texts(accepted, "one_phase")
    odd = expansion(2, 3, {0: (100, 120), 1: (200, 220)})
    made = plan({0: 0, 1: 0, 2: 0}, dict.fromkeys(range(3), END), odd, phases=True)
    assert {row.partition: row.target_offset for row in made.partitions} == {0: 0, 1: 0, 2: END}
    assert order_rules(made) == {"order_needs_phases": Severity.WARNING}
    assert "nothing can wait alone" in texts(made, "order_needs_phases")[0] or texts(made, "waits")


def test_a_plan_that_would_do_something_else_when_it_is_sent_is_stale() -> None:
    """Left out rows and other resets change the outcome: worse than planned is refused, the same is not."""
    positions = four()
    made = plan({0: 300, 2: 500}, {**positions, 0: 50, 2: 0}, DOUBLED)
    assert order_rules(made) == {}
    same = snapshot({0: 300, 2: 500}, {**positions, 0: 50, 2: 0}, DOUBLED)
    assert order_since_plan(made, made.partitions, same) == ()
    alone = [row for row in made.partitions if row.partition == 2]
    (notice,) = order_since_plan(made, alone, same)
    assert (notice.rule, notice.group_id, notice.topic, notice.partition) == ("order_changed", "g", "orders", None)

    second = plan({2: 0}, {0: 150, 1: 300, 2: END, 3: END}, DOUBLED, kind=StrategyKind.NEXT_PHASE)
    rewound = snapshot({2: 0}, {0: 90, 1: 300, 2: END, 3: END}, DOUBLED)
    assert [each.rule for each in order_since_plan(second, second.partitions, rewound)] == ["order_changed"]


small = st.integers(0, 12)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, int | None], tuple[ExpansionFacts, ...]]:
    """Targets of some partitions, positions of all, one or two expansions."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 2))):
        counts.append(counts[-1] + draw(st.integers(1, 3)))
    mapping = draw(st.sampled_from(KeyMapping))
    expansions = []
    for old, new in pairwise(counts):
        fences = {}
        for source in range(old):
            low, high = sorted((draw(small), draw(small)))
            fences[source] = draw(st.sampled_from([(low, high), (low, None), (None, None)]))
        expansions.append(expansion(old, new, fences, key_mapping=mapping))
    positions = {partition: draw(st.one_of(st.none(), small)) for partition in range(counts[-1])}
    chosen = draw(st.sets(st.sampled_from(sorted(positions)), min_size=1))
    return {partition: draw(small) for partition in sorted(chosen)}, positions, tuple(expansions)


@given(scenes())
def test_what_strict_lets_pass_rewinds_no_source_behind_what_is_begun(
    scene: tuple[dict[int, int], dict[int, int | None], tuple[ExpansionFacts, ...]],
) -> None:
    """Of every dependency that the reset touches: a source below its low fence has no destination past its beginning,
    and nothing about it is unknown. Accepted without a word: the source is at its high fence or further."""
    targets, positions, expansions = scene
    made = plan(targets, positions, *expansions, ordering=KeyOrder.STRICT)
    if any(each.rule in RULES.values() for each in made.refusals):
        return
    outcome = {**positions, **targets}
    for each in expansions:
        fences = {fence.partition: fence for fence in each.fences}
        for pair in dependencies(each.old_count, each.new_count, each.key_mapping):
            if not {pair.source, pair.destination} & targets.keys():
                continue
            fence, source, reached = fences[pair.source], outcome[pair.source], outcome[pair.destination]
            assert source is not None
            if fence.high is not None and source >= fence.high:
                continue
            assert "order_needs_phases" in order_rules(made)
            assert fence.low is not None
            assert source < fence.low
            beginning = fences[pair.destination].low if pair.destination < each.old_count else 0
            assert beginning is not None
            assert (reached or 0) <= beginning


@given(scenes(), st.data())
def test_phases_carry_any_reset_through(
    scene: tuple[dict[int, int], dict[int, int | None], tuple[ExpansionFacts, ...]], data: st.DataObject
) -> None:
    """Phase after phase, with the group finishing everything in between: each partition is set to its target in one of
    them, none is refused, and a phase sets nothing whose sources are not finished."""
    targets, positions, expansions = scene
    count = expansions[-1].new_count
    made = plan(targets, positions, *expansions, phases=True)
    set_to: dict[int, int] = {}
    for _ in range(count + 1):
        assert made.orders is not None
        waits = made.orders[0].waits
        set_to |= {row.partition: row.target_offset for row in made.partitions if row.partition not in waits}
        if not waits:
            break
        following = {each.partition: each.offset for each in made.orders[0].waiting}
        made = plan(following, dict.fromkeys(range(count), END), *expansions, kind=StrategyKind.NEXT_PHASE)
        assert not made.refusals
    assert set_to == targets
