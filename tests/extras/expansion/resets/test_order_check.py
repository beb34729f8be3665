"""What a plan means for the order of keys across expansions: refused, warned of, or done in two resets; it is seen
before it is done."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, product
from math import gcd
from typing import Any

import pytest
from change.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.change.change_kind import parse_plan
from acktrail.change.plan.change_plan import plan_json
from acktrail.change.plan.notices import Severity
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan.snapshot_facts import PartitionFacts, Snapshot, TargetOffset
from acktrail.change.request.reset_request import Strategy, StrategyKind
from acktrail_expansion.ordering.order import KeyMapping
from acktrail_expansion.resets.order_check import KeyOrderCheck
from acktrail_expansion.resets.reset_order import FencedExpansion, GroupPlace, ResetOrdering, check_reset
from acktrail_expansion.settings import OrderedGroups

END, MURMUR2 = 1_000, KeyMapping.MURMUR2
DOUBLED = FencedExpansion(2, 4, MURMUR2, {0: (100, 120), 1: (200, 220)})
RULES = {order.name: order.value for order in ResetOrdering}
BROKEN, UNCERTAIN, GATE = RULES.values()
ORDERED, NONE = OrderedGroups(("g",)), OrderedGroups()
REFUSED, WARNED, SERIOUS = Severity.REFUSAL, Severity.WARNING, Severity.SERIOUS
Found = tuple[Snapshot, KeyOrderCheck]
any_group = pytest.mark.parametrize("ordered", [NONE, ORDERED], ids=["any", "ordered"])


def snapshot(
    targets: Mapping[int, int],
    others: Mapping[int, int | None],
    known: FencedExpansion | None = DOUBLED,
    ordered: OrderedGroups = NONE,
) -> Found:
    """The group is at the ends of the partitions, but for `others`; those without a target stay."""
    count = 2 if known is None else known.new_count

    def facts(partition: int) -> PartitionFacts:
        row = partition_facts(others.get(partition, END), (0, END), partition=partition, partition_count=count)
        given = TargetOffset(offset=targets.get(partition), topic_id=TOPIC.topic_id)
        return replace(row, given=given if partition in targets else TargetOffset(), offset_at=0)

    taken = a_snapshot(
        *map(facts, sorted(targets)),
        topics=(replace(TOPIC, partition_count=count),),
        staying=tuple(facts(partition) for partition in range(count) if partition not in targets),
    )
    return taken, KeyOrderCheck(known={"orders": known and [known]}, ordered=ordered)


def planned(found: Found, kind: StrategyKind = StrategyKind.FROM_FILE, **asked: Any) -> ResetPlan:
    taken, check = found
    return a_plan(a_request(kind, allow_skip=True, **asked), taken, [check])


def said(made: ResetPlan) -> dict[str, Severity]:
    return {each.rule: each.severity for each in made.notices if each.rule in RULES.values()}


def text(made: ResetPlan, rule: str) -> str:
    return next(each.text for each in made.notices if each.rule == rule)


def commands(made: ResetPlan) -> list[list[str]]:
    return [shlex.split(part) for part in text(made, GATE).split("`")[1::2]]


@any_group
@pytest.mark.parametrize("case", SEED["kip253"]["reset_cases"], ids=lambda case: case["verdict"])
def test_the_vectors_of_resets_through_the_planner(case: dict[str, Any], ordered: OrderedGroups) -> None:
    """R003-05: for an ordered group what is rejected or uncertain is refused, else it is a warning; what is accepted
    has no notice."""
    fences = {int(source): (at, at) for source, at in case["fence"].items()}
    known = FencedExpansion(case["n_old"], case["n_new"], MURMUR2, fences)
    made = planned(snapshot({int(p): at for p, at in case["targets"].items()}, {}, known, ordered))
    is_refused = ordered is ORDERED and case["verdict"] in ("REJECT", "UNCERTAIN")
    severity = REFUSED if is_refused else WARNED
    assert said(made) == ({} if case["verdict"] == "ACCEPT" else {RULES[case["verdict"]]: severity})
    assert bool(made.executable(partial=True)) != is_refused
    assert parse_plan(plan_json(made), "f") == made


@pytest.mark.parametrize(
    ("targets", "others", "state", "rules"),
    [
        ({0: 50}, {2: 0}, {}, {GATE}),
        ({0: 50}, {2: None}, {}, {GATE}),
        ({0: 50}, {2: 0}, {"batches": ((3, 4, 2, 1),)}, {BROKEN}),
        ({2: 5}, {0: None}, {}, {UNCERTAIN}),
        ({2: 5}, {0: 0}, {"first_unfinished_offset": 120}, set()),
        ({2: 5}, {0: 0}, None, {UNCERTAIN}),
        ({3: 20}, {0: 50, 2: 7, 3: 9}, {}, set()),
    ],
    ids=["not-begun", "no-start-offset", "delivered", "no-source", "finished", "not-read", "not-touched"],
)
def test_the_positions_that_stay_count(
    targets: dict[int, int], others: dict[int, int | None], state: dict[str, Any] | None, rules: set[str]
) -> None:
    """What the reset does not touch is where the group is. A start offset alone is no place: Kafka moves it with the
    next write, and records behind it may have been delivered, or all finished."""
    taken, check = snapshot(targets, others)
    staying = tuple(with_state(row, state) if row.partition in others else row for row in taken.staying)
    assert said(planned((replace(taken, staying=staying), check))) == dict.fromkeys(rules, WARNED)


def with_state(row: PartitionFacts, state: dict[str, Any] | None) -> PartitionFacts:
    """None: the state was not read."""
    return replace(row, state=None if state is None or row.state is None else replace(row.state, **state))


def test_what_is_allowed_warns() -> None:
    """`allow` names the rule that a refusal names; an undo puts groups where they were, and is warned of alone."""
    found = snapshot({0: 50}, {2: 7}, ordered=ORDERED)
    assert text(planned(found), BROKEN).endswith("(--allow order_broken allows it)")
    asked = [{"allow": (UNCERTAIN,)}, {"allow": (BROKEN,)}, {"kind": StrategyKind.TO_SNAPSHOT}]
    assert [said(planned(found, **each))[BROKEN] for each in asked] == [REFUSED, SERIOUS, SERIOUS]


def test_an_expansion_that_may_be_two_is_uncertain() -> None:
    """From 2 to 3 to 4 partition 3 follows partition 0, too."""
    made = planned(snapshot({0: 50}, {2: 0}, DOUBLED._replace(is_single=False)))
    assert said(made) == {GATE: WARNED, UNCERTAIN: WARNED}
    assert "may have been in between" in text(made, "expansion_not_single")
    made = planned(snapshot({0: 5}, {}, None))
    assert [each.severity for each in made.notices if each.rule == "expansions_unknown"] == [Severity.INFO]


@any_group
def test_the_two_resets_are_said_and_the_second_is_judged_by_the_same_check(ordered: OrderedGroups) -> None:
    """To the earliest of everything: 0 and 1 first, then 2 and 3; too early the second reset is warned of, and refused
    for an ordered group."""
    whole = planned(snapshot(dict.fromkeys(range(4), 0), {}, DOUBLED, ordered), StrategyKind.TO_EARLIEST)
    assert said(whole) == {GATE: WARNED}
    assert ["--allow" in command for command in commands(whole)] == [ordered is ORDERED, False]
    early = [planned(snapshot({2: 0, 3: 0}, {0: at}, DOUBLED, ordered)) for at in (40, 119, 120)]
    severity = REFUSED if ordered is ORDERED else WARNED
    assert [said(made) for made in early] == [{GATE: severity}, {UNCERTAIN: severity}, {}]
    assert "Let the group finish partition 0, stop it, and plan again" in text(early[0], GATE)


def test_two_resets_are_said_where_they_can_be() -> None:
    """A duration is the same moment in both; a file of offsets has no command with a topic. Where the count is no
    multiple, records from before and after lie together; what is not reset cannot wait."""
    whole = snapshot(dict.fromkeys(range(4), 0), {})
    by_duration = planned(whole, strategy=Strategy(kind=StrategyKind.BY_DURATION, moment_ms=0))
    assert [command[-1] for command in commands(by_duration)] == ["--to-datetime=1970-01-01T00:00:00.000Z"] * 2
    assert commands(planned(whole)) == []
    odd = snapshot(dict.fromkeys(range(3), 0), {}, FencedExpansion(2, 3, MURMUR2, {0: (9, 9), 1: (9, 9)}))
    assert "In partitions 0, 1 records from before and after lie together. In two resets" in text(planned(odd), GATE)
    assert "Nothing holds partition 2 back" in text(planned(snapshot({0: 50}, {2: 0})), GATE)


small = st.integers(0, 6)


def test_a_place_is_before_or_behind_a_fence_as_far_as_it_is_known() -> None:
    """By an exact place, a start offset that may stand below finished records, the log's end and what retention took;
    has begun what was given something from behind the fence."""
    fence, exact = (10, 20), [GroupPlace(first=at) for at in (9, 15, 20)]
    inexact = [GroupPlace(first=at, is_exact=False, given=None) for at in (9, 20, 21)]
    assert [place.is_before(fence) for place in exact] == [True, None, False]
    assert [place.is_before(fence) for place in inexact] == [None, False, False]
    assert [place.has_begun(fence) for place in inexact] == [None, None, True]
    assert [exact[0].is_before(each) for each in ((None, None), (10, None), (9, None))] == [None, True, None]
    assert [GroupPlace(first=3, **of).is_before(fence) for of in ({"start": 20}, {"end": 3})] == [False, False]
    given_to = [GroupPlace(first=3, given=given) for given in (None, 10, 15, 21)]
    assert [place.has_begun(fence) for place in given_to] == [None, False, None, True]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]]:
    """Up to three expansions of one topic; some fences and places are not known; the partitions of a reset."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 3))):
        counts.append(counts[-1] + draw(st.integers(1, 4)))
    mapping, expansions = draw(st.sampled_from(KeyMapping)), []
    for old, new in pairwise(counts):
        low, high = sorted((draw(small), draw(small)))
        ends = st.sampled_from([(low, high), (low, high), (low, None), (None, None)])
        fences = {source: draw(ends) for source in range(old)}
        expansions.append(FencedExpansion(old, new, mapping, fences, draw(st.booleans())))
    made = st.builds(
        GroupPlace, first=small, is_exact=st.booleans(), given=st.none() | small, end=st.none() | st.just(6)
    )
    where = {partition: draw(made) for partition in range(counts[-1])}
    return expansions, where, draw(st.frozensets(st.sampled_from(sorted(where)), min_size=1))


@given(chains())
def test_each_destination_is_judged_by_its_worst_source(
    chain: tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]],
) -> None:
    """R003-05: as pair by pair of a source and a partition that its keys may be in; a reason names no partition that
    the reset has nothing to do with."""
    expansions, where, touched = chain
    expected: dict[tuple[int, int], str] = {}
    for index, number in combinations_with_replacement(range(len(expansions)), 2):
        left, reached = expansions[index], expansions[number]
        is_hidden = not all(each.is_single for each in expansions[index : number + 1])
        is_whole, is_known = left.new_count % left.old_count == 0, left.mapping is not KeyMapping.NONE
        for source, destination in product(range(left.old_count), range(reached.new_count)):
            is_new, is_before = destination >= left.old_count, where[source].is_before(left.fences[source])
            is_moved = (source - destination) % gcd(left.old_count, reached.new_count) == 0 if is_known else is_new
            is_pair = source != destination and (is_moved or (is_hidden and is_new))
            if not is_pair or is_before is False or touched.isdisjoint({source, destination}):
                continue
            begun, order = where[destination].has_begun(reached.fences.get(destination, (0, 0))), UNCERTAIN
            if is_before and begun is not None:
                is_certain = is_moved and number == index and (left.is_single or is_whole or not is_known)
                order = GATE if not begun else BROKEN if is_certain else UNCERTAIN
            about = left.old_count, destination
            expected[about] = min(expected.get(about, order), order, key=list(ResetOrdering).index)
    reasons = [*check_reset(where, expansions, touched)]
    assert {(each.left.old_count, to): each.order for each in reasons for to in each.destinations} == expected
    assert sum(len(each.destinations) for each in reasons) == len(expected)
    assert all({source, *each.destinations} & touched for each in reasons for source in each.sources)
