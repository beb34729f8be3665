"""What a plan means for the order of keys across expansions: refused, warned of, or done in two resets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from reset.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts
from samples.golden_vectors import SEED

from acktrail.group_changes.collection.facts import PartitionFacts, Snapshot, TargetOffset
from acktrail.group_changes.planning.judged_again import as_planned, differences, own_offsets
from acktrail.group_changes.planning.notices import Severity
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.planning.plan_file import parse_plan, plan_json
from acktrail.group_changes.request.reset_request import ResetRequest, Strategy, StrategyKind
from acktrail.model.delivery import StateBatch
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.resets.order_check import KeyOrderCheck
from acktrail_expansion.resets.reset_order import Fence, FencedExpansion, TopicExpansions
from acktrail_expansion.settings import OrderedGroups

END = 1_000
RULES = {"REJECT": "order_broken", "UNCERTAIN": "order_uncertain", "WARN_NEEDS_GATE": "order_needs_gate"}
ORDERED = OrderedGroups(("g",))
REFUSED, WARNED, SERIOUS = Severity.REFUSAL, Severity.WARNING, Severity.SERIOUS


def expansion(old_count: int, new_count: int, fences: Mapping[int, Fence], **changes: Any) -> FencedExpansion:
    found = FencedExpansion(old_count=old_count, new_count=new_count, mapping=KeyMapping.MURMUR2, fences=fences)
    return replace(found, **changes)


DOUBLED = expansion(2, 4, {0: (100, 120), 1: (200, 220)})


def snapshot(
    targets: Mapping[int, int],
    positions: Mapping[int, int | None],
    *expansions: FencedExpansion,
    batches: Mapping[int, StateBatch] | None = None,
    ordered: OrderedGroups = OrderedGroups(),  # noqa: B008  # frozen
    reason: str | None = None,
) -> Snapshot:
    """The group at `positions`; partitions with a target are in the request, the others stay."""

    def facts(partition: int) -> PartitionFacts:
        found = (batches[partition],) if batches and partition in batches else ()
        row = partition_facts(positions[partition], (0, END), found, partition=partition, partition_count=count)
        given = TargetOffset(offset=targets.get(partition), topic_id=TOPIC.topic_id)
        return replace(row, given=given if partition in targets else TargetOffset())

    count = expansions[-1].new_count if expansions else len(positions)
    known = {"orders": TopicExpansions(expansions=expansions, reason=reason)}
    return a_snapshot(
        *map(facts, sorted(targets)),
        topics=(replace(TOPIC, partition_count=count),),
        checks=(KeyOrderCheck(known=known, ordered=ordered),),
        staying=tuple(facts(partition) for partition in sorted(positions) if partition not in targets),
    )


def request(**changes: Any) -> ResetRequest:
    kind = changes.pop("kind", StrategyKind.FROM_FILE)
    return a_request(kind, **{"allow_skip": True, **changes})


def plan(
    targets: Mapping[int, int],
    positions: Mapping[int, int | None],
    *expansions: FencedExpansion,
    asked: Mapping[str, Any] | None = None,
    **facts: Any,
) -> ResetPlan:
    return a_plan(request(**(asked or {})), snapshot(targets, positions, *expansions, **facts))


def order_rules(made: ResetPlan) -> dict[str, Severity]:
    return {each.rule: each.severity for each in made.notices if each.rule in RULES.values()}


def text(made: ResetPlan, rule: str) -> str:
    (found,) = (each.text for each in made.notices if each.rule == rule)
    return found


def four(at: int = END) -> dict[int, int | None]:
    return dict.fromkeys(range(4), at)


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("case", SEED["kip253"]["reset_cases"], ids=lambda case: case["verdict"])
def test_the_vectors_of_resets_through_the_planner(case: dict[str, Any], *, is_ordered: bool) -> None:
    """R003-05: for an ordered group what is rejected or uncertain is refused, else it is a warning; what is accepted
    has no notice."""
    known = expansion(case["n_old"], case["n_new"], {int(q): (at, at) for q, at in case["fence"].items()})
    targets = {int(p): at for p, at in case["targets"].items()}
    ordered = ORDERED if is_ordered else OrderedGroups()
    made = plan(targets, dict.fromkeys(range(case["n_new"]), END), known, ordered=ordered)

    is_refused = is_ordered and case["verdict"] in ("REJECT", "UNCERTAIN")
    severity = REFUSED if is_refused else WARNED
    assert order_rules(made) == ({} if case["verdict"] == "ACCEPT" else {RULES[case["verdict"]]: severity})
    assert bool(made.executable(partial=True)) != is_refused
    assert parse_plan(plan_json(made), "f") == made


def test_the_positions_that_stay_count() -> None:
    """Only partition 0 is reset: the destination stays where the group is, begun, or with a record delivered beyond
    its start offset; at its beginning it only has to wait."""
    rejected = plan({0: 50}, {**four(), 2: 7}, DOUBLED)
    assert order_rules(rejected) == {"order_broken": WARNED}
    assert text(rejected, "order_broken") == (
        "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it"
    )
    waits = plan({0: 50}, {**four(), 2: 0}, DOUBLED)
    assert order_rules(waits) == {"order_needs_gate": WARNED}
    assert "Nothing holds partition 2 back" in text(waits, "order_needs_gate")
    gone_on = {2: StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)}
    assert order_rules(plan({0: 50}, {**four(), 2: 0}, DOUBLED, batches=gone_on)) == {"order_broken": WARNED}
    not_begun = plan({0: 50}, {**four(), 2: None}, DOUBLED)
    assert order_rules(not_begun) == {"order_needs_gate": WARNED}, "a new partition without a start offset is not begun"
    unknown = plan({2: 5}, {**four(), 0: None}, DOUBLED)
    assert order_rules(unknown) == {"order_uncertain": WARNED}, "where the group begins with a source is not known"
    assert order_rules(plan({3: 20}, {0: 50, 1: END, 2: 7, 3: 9}, DOUBLED)) == {}, "what the reset does not touch"


def test_the_lazy_start_offset_is_no_place() -> None:
    """Kafka moves the start offset with the next write: a group that finished all may stand at 26 with a batch from 26
    to 59 acknowledged. Without the state, the start offset is a place at or after it."""
    lazy = snapshot({2: 0}, {0: 26, 1: END, 2: END, 3: END}, expansion(2, 4, {0: (60, 60), 1: (0, 0)}))
    drained = tuple(
        replace(row, state=replace(row.state, first_unfinished_offset=60)) if row.partition == 0 and row.state else row
        for row in lazy.staying
    )
    assert order_rules(a_plan(request(), lazy)) == {"order_needs_gate": WARNED}
    assert order_rules(a_plan(request(), replace(lazy, staying=drained))) == {}
    unread = tuple(replace(row, state=None, state_reason="READ is missing") for row in lazy.staying)
    assert order_rules(a_plan(request(), replace(lazy, staying=unread))) == {"order_uncertain": WARNED}


def test_to_the_end_of_everything_is_accepted_with_any_fences() -> None:
    """To the latest of all partitions: no fence is known, or not yet."""
    for known in (DOUBLED, expansion(2, 4, {0: (100, None)}), expansion(2, 4, {})):
        found = snapshot(dict.fromkeys(range(4), 0), four(3), known, ordered=ORDERED)
        made = a_plan(request(kind=StrategyKind.TO_LATEST), found)
        assert order_rules(made) == {}
        assert not made.refusals


def test_what_is_allowed_warns() -> None:
    """`allow` names the rule that a refusal names; an undo puts groups where they were, and is warned of alone."""
    positions = {**four(), 2: 7}
    refused = plan({0: 50}, positions, DOUBLED, ordered=ORDERED)
    assert order_rules(refused) == {"order_broken": REFUSED}
    assert text(refused, "order_broken").endswith("(--allow order_broken allows it)")
    allowed = {"allow": ("order_broken",)}
    assert order_rules(plan({0: 50}, positions, DOUBLED, ordered=ORDERED, asked=allowed)) == {"order_broken": SERIOUS}
    other = {"allow": ("order_uncertain",)}
    assert order_rules(plan({0: 50}, positions, DOUBLED, ordered=ORDERED, asked=other)) == {"order_broken": REFUSED}
    undo = {"kind": StrategyKind.TO_SNAPSHOT}
    assert order_rules(plan({0: 50}, positions, DOUBLED, ordered=ORDERED, asked=undo)) == {"order_broken": SERIOUS}


def test_what_is_not_known_is_said() -> None:
    """No tables, and an expansion that may be two: from 2 to 3 to 4 partition 3 follows partition 0, too."""
    perhaps = replace(DOUBLED, is_single=False)
    kept = {**four(), 2: 0}
    made = plan({0: 50}, kept, perhaps)
    assert order_rules(made) == {"order_needs_gate": WARNED, "order_uncertain": WARNED}
    assert "may have been in between" in text(made, "expansion_not_single")
    assert plan({0: 50}, kept, perhaps, ordered=ORDERED).refusals
    for ordered, severity in ((OrderedGroups(), Severity.INFO), (ORDERED, WARNED)):
        made = plan({0: 5}, {0: 50, 1: 50}, ordered=ordered, reason="no tables")
        assert [(each.severity, each.topic) for each in made.notices if each.rule == "expansions_unknown"] == [
            (severity, "orders")
        ]


@pytest.mark.parametrize("ordered", [OrderedGroups(), ORDERED], ids=["any", "ordered"])
def test_the_two_resets_are_said_and_the_second_is_judged_by_the_same_check(ordered: OrderedGroups) -> None:
    """To the earliest of everything: 0 and 1 first, then 2 and 3; too early the second reset is warned of, and refused
    for an ordered group."""
    allow = " --allow order_broken" if ordered.globs else ""
    whole = a_plan(
        request(kind=StrategyKind.TO_EARLIEST), snapshot(dict.fromkeys(range(4), 0), four(), DOUBLED, ordered=ordered)
    )
    assert order_rules(whole) == {"order_needs_gate": WARNED}
    said = text(whole, "order_needs_gate")
    assert f"`acktrail reset plan --group g --topic orders:0,1 --to-earliest{allow}`" in said
    assert "`acktrail reset plan --group g --topic orders:2,3 --to-earliest`" in said
    first = plan({0: 0, 1: 0}, four(), DOUBLED, ordered=ordered, asked={"allow": ("order_broken",) if allow else ()})
    assert not first.refusals
    early = plan({2: 0, 3: 0}, {**four(), 0: 119}, DOUBLED, ordered=ordered)
    assert not order_rules(early).keys() - {"order_uncertain"}, "between both ends of the fence"
    early = plan({2: 0, 3: 0}, {**four(), 0: 40}, DOUBLED, ordered=ordered)
    assert order_rules(early) == {"order_needs_gate": REFUSED if allow else WARNED}
    assert "Let the group finish partition 0, stop it, and plan again" in text(early, "order_needs_gate")
    assert order_rules(plan({2: 0, 3: 0}, {**four(), 0: 120}, DOUBLED, ordered=ordered)) == {}


def test_a_chain_of_expansions_takes_a_reset_for_each() -> None:
    """From 2 to 4 to 8: the partitions of the second plan are no source of others, those of the first are asked again
    until nothing waits; where the count is no multiple, records from before and after lie together."""
    known = (expansion(2, 4, dict.fromkeys(range(2), (9, 9))), expansion(4, 8, dict.fromkeys(range(4), (9, 9))))
    done: list[list[int]] = []
    left = list(range(8))
    while left:
        positions = dict.fromkeys(range(8), END)
        made = plan(dict.fromkeys(left, 0), positions, *known, asked={"kind": StrategyKind.TO_EARLIEST})
        commands = [each.split() for each in text(made, "order_needs_gate").split("`")[1::2]] if len(left) > 2 else []
        first = commands[0][commands[0].index("--topic") + 1].partition(":")[2] if commands else ""
        kept = [int(each) for each in first.split(",")] if first else []
        done.insert(0, [each for each in left if each not in kept])
        left = kept
    assert done == [[0, 1], [2, 3], [4, 5, 6, 7]]
    odd = plan(dict.fromkeys(range(3), 0), dict.fromkeys(range(3), END), expansion(2, 3, {0: (9, 9), 1: (9, 9)}))
    assert "In partitions 0, 1 records from before and after lie together" in text(odd, "order_needs_gate")
    assert "and when the group has finished these and is stopped, of partition 2" in text(odd, "order_needs_gate")


@pytest.mark.parametrize(
    ("strategy", "option"),
    [
        (Strategy(kind=StrategyKind.TO_OFFSET, number=0), "--to-offset=0"),
        (Strategy(kind=StrategyKind.TO_DATETIME, moment_ms=0), "--to-datetime 1970-01-01T00:00:00.000Z"),
        (Strategy(kind=StrategyKind.BY_DURATION, moment_ms=0), "--to-datetime 1970-01-01T00:00:00.000Z"),
        (Strategy(kind=StrategyKind.FROM_FILE, source="f.csv"), None),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Strategy) else "",
)
def test_the_commands_have_the_plans_own_strategy(strategy: Strategy, option: str | None) -> None:
    """Duration or moment: the same moment in both resets. A file of offsets has no command with a topic."""
    found = snapshot(dict.fromkeys(range(4), 0), four(), DOUBLED)
    rows = tuple(replace(row, offset_at=0) for row in found.partitions)
    said = text(a_plan(request(strategy=strategy), replace(found, partitions=rows)), "order_needs_gate")
    commands = [shlex.split(part) for part in said.split("`")[1::2]]
    options = [] if option is None else [option.split()] * 2
    assert [command[command.index("--topic") + 2 :] for command in commands] == options


def test_a_plan_that_would_do_something_else_when_it_is_sent_is_refused() -> None:
    """Rows that are left out and resets of others change the outcome: what the plan does not say is refused."""
    before = {**four(), 0: 50, 2: 0}
    made = plan({0: 300, 2: 500}, before, DOUBLED)
    assert order_rules(made) == {}

    def changes(keys: set[int], positions: Mapping[int, int | None]) -> list[str]:
        now = as_planned(made, snapshot({0: 300, 2: 500}, positions, DOUBLED), own_offsets(made))
        rows = [row for row in made.partitions if row.partition in keys]
        return [notice.rule for notice in differences(made, rows, now) if notice.rule in RULES.values()]

    assert changes({0, 2}, before) == []
    assert changes({2}, before) == ["order_broken"]
    assert changes({0, 2}, {**before, 1: 5}) == [], "partition 3 depends on it, and is not in the plan"
