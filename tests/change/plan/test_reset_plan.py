"""A plan is a value: the same facts, the same hash; its notices say what forbids it; a changed file is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from change.scenes import (
    CASES,
    CLUSTER,
    TOPIC,
    a_plan,
    a_request,
    a_snapshot,
    edited,
    group_facts,
    leaves,
    logs,
    partition_facts,
    scene_of,
    state,
)
from drivers.command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.change.change_kind import load_plan, parse_plan, read_plan
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import ChangePlan, check_age, hash_of, plan_json, with_hash
from acktrail.change.plan.notices import Notice, RefusedParts, Severity, refusal_error
from acktrail.change.plan.record_counts import with_passed
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan.snapshot_facts import PartitionFacts, PartitionState
from acktrail.change.request.reset_request import OutOfRange, ResetRequest, Strategy, StrategyKind
from acktrail.config import TablesConfig
from acktrail.dataclass_json import from_json_value, to_json_value
from acktrail.errors import AcktrailError, ChangeRefused, GroupNotEmpty, InputError, MalformedFile, PlanStale
from acktrail.group_changes.group_change_plan import GroupChange, GroupChangePlan
from acktrail.model.batches import StateBatch
from acktrail.view.change_text import plan_text, shown_partitions, sums

ARCHIVED = StateBatch(first_offset=42, last_offset=44, delivery_state=4, delivery_count=5)


def rules(plan: ResetPlan, severity: Severity) -> set[str]:
    return {notice.rule for notice in plan.notices if notice.severity is severity}


def requested(asked: dict[str, Any]) -> ResetRequest:
    kinds = {"kind": StrategyKind, "out_of_range": OutOfRange}
    return a_request(**{name: kinds.get(name, type(value))(value) for name, value in asked.items()})


@given(logs(), st.sampled_from([StrategyKind.TO_EARLIEST, StrategyKind.TO_LATEST, StrategyKind.TO_CURRENT]))
@settings(max_examples=30)
def test_a_plan_survives_its_file(facts: PartitionFacts, kind: StrategyKind) -> None:
    """Written and read it is the same value, and making it again from the same facts gives the same hash."""
    plan = a_plan(a_request(kind), a_snapshot(facts))
    assert parse_plan(plan_json(plan), "f") == plan
    assert a_plan(a_request(kind), a_snapshot(facts)).plan_hash == plan.plan_hash


def test_layout_does_not_matter_to_the_hash() -> None:
    """Keys in another order and other spaces are the same plan."""
    plan = a_plan()
    turned = json.dumps(dict(reversed(json.loads(plan_json(plan)).items())), indent=7)
    assert parse_plan(turned, "f") == plan


def a_deletion() -> GroupChangePlan:
    rows = a_plan(a_request(allow_skip=True)).partitions
    part = GroupChange(group_id="g", topics=("orders",))
    about = {"plan_id": "p3", "created_at_ms": 0, "created_by": "ann", "cluster": CLUSTER, "partitions": rows}
    return with_hash(GroupChangePlan(kind="delete_offsets", parts=(part,), **about))


@pytest.mark.parametrize("plan", [a_plan(), a_deletion()], ids=["reset", "deletion"])
def test_what_a_person_reads_follows_from_what_is_sent(plan: ChangePlan) -> None:
    """An edited file whose hash was made again: each field that follows from the request says what is sent, or the
    file is refused."""
    others: dict[str, Any] = {"strategy": "to-earliest", "totals": replace(plan.totals, skipped=-1), "reason": "x"}
    others |= {"kind": "undo", "undoes": "p0", "requested_by": "boss"}
    for name, value in plan.derived().items():
        made = replace(plan, **{name: others[name] if others[name] != value else "other"})
        text = plan_json(replace(made, plan_hash=hash_of(made)))
        with pytest.raises(InputError):
            parse_plan(text, "f")
    assert {"strategy", "totals"} <= plan.derived().keys()


def test_an_undo_of_nothing_is_no_plan() -> None:
    """Kind `undo` without the plan that it takes back, in whichever place it is left out."""
    for source in (None, "p0"):
        request = a_request(strategy=Strategy(kind=StrategyKind.TO_SNAPSHOT, source=source))
        made = replace(with_hash(replace(a_plan(), request=request)), undoes=None)
        with pytest.raises(PlanStale, match="undoes"):
            parse_plan(plan_json(replace(made, plan_hash=hash_of(made))), "f")


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else (value or "") + "x"


def test_no_number_or_word_can_be_changed_by_hand() -> None:
    """Every single leaf of the file, changed: the file is refused."""
    data = json.loads(plan_json(a_plan(a_request(), a_snapshot(partition_facts(40, (10, 100), (ARCHIVED,))))))
    assert len(leaves(data)) > 60
    for path in leaves(data):
        with pytest.raises((PlanStale, InputError)):
            parse_plan(json.dumps(edited(data, path, _changed)), "f")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda d: d | {"version": 3}, "[other_version]"),
        (lambda d: d | {"format": "x"}, "is not a plan of a change"),
        (lambda d: d | {"more": 1}, "field 'more' is not known"),
        (lambda d: {k: v for k, v in d.items() if k != "totals"}, "field 'totals' is missing"),
        (lambda d: d | {"created_at_ms": "1"}, "created_at_ms: int wanted, str found"),
        (lambda d: d | {"created_at_ms": True}, "int wanted, bool found"),
        (lambda d: d | {"plan_hash": "sha256:0"}, "[edited_plan]"),
        (lambda d: [d], "is not a plan of a change"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, edit: Any, says: str) -> None:
    """R004-30: another version, another file, another shape, another hash: each is said as such."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(edit(json.loads(plan_json(a_plan())))))
    with pytest.raises((PlanStale, MalformedFile, InputError)) as caught:
        read_plan(file)
    assert says in caught.value.message


def test_a_field_that_is_none_says_what_it_may_be() -> None:
    """How many values a list must have, and which words there are."""
    data = json.loads(plan_json(a_plan(a_request(), a_snapshot(partition_facts(40, (10, 100), (ARCHIVED,))))))
    data["request"]["strategy"]["kind"] = "bogus"
    with pytest.raises(InputError, match=r"kind: 'bogus' is none of to-earliest, to-latest, .*, to-history, .*"):
        parse_plan(json.dumps(data), "f")
    state_json = to_json_value(state(40, (ARCHIVED,)))
    state_json["batches"][0].pop()
    with pytest.raises(InputError, match=r"batches: 0: 4 values wanted, 3 found$"):
        from_json_value(PartitionState, state_json)


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    """Nothing, a folder, a picture, half a plan, brackets without end."""
    file = tmp_path / "plan.json"
    for content in (b"", b"\x89PNG\xff", plan_json(a_plan()).encode()[:500], b"[" * 100_000):
        file.write_bytes(content)
        with pytest.raises(MalformedFile):
            read_plan(file)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(MalformedFile):
            read_plan(path)


def test_a_plan_has_an_age() -> None:
    """From the future and too old are refused; clocks may differ by minutes."""
    plan = a_plan()
    check_age(plan.created_at_ms, now_ms=plan.created_at_ms - 60_000)
    check_age(plan.created_at_ms, now_ms=plan.created_at_ms + 3_600_000)
    for now_ms, rule in ((plan.created_at_ms - 600_000, "from_the_future"), (plan.created_at_ms + 10**9, "too_old")):
        with pytest.raises(PlanStale) as caught:
            check_age(plan.created_at_ms, now_ms=now_ms)
        assert caught.value.rule == rule


@pytest.mark.parametrize(("rule", "asked", "changes"), CASES["refusals"])
def test_each_rule_forbids(rule: str, asked: dict[str, Any], changes: dict[str, Any]) -> None:
    """R004-26, R004-30: the refusal has the rule's name, and nothing may be sent."""
    plan = a_plan(requested(asked), scene_of(**changes))

    assert rules(plan, Severity.REFUSAL) == {rule}
    assert plan.executable(partial=False) == ()
    if plan.totals.refused_partitions == plan.totals.partitions:
        assert (plan.totals.to_deliver, plan.totals.delivered_again, plan.totals.archived_forgotten) == (
            None,
            None,
            None,
        )


def test_what_lies_below_the_start_offset_is_unknown_and_never_zero() -> None:
    """Without the history: no number, at least what the state has, and one notice that says why."""
    snapshot = a_snapshot(partition_facts(40, (10, 100), (ARCHIVED,)), partition_facts(20, (10, 50), partition=1))
    plan = a_plan(a_request(), with_passed(None, None, a_request(), snapshot))

    assert (plan.totals.archived_forgotten, plan.totals.acknowledgements_forgotten) == (None, None)
    assert (plan.totals.archived_known, plan.totals.acknowledgements_known, plan.totals.passed_unknown) == (3, 0, 40)
    assert rules(plan, Severity.WARNING) == {"delivered_again", "archived_again", "passed_unknown"}
    (notice,) = [notice for notice in plan.notices if notice.rule == "passed_unknown"]
    assert notice.text.startswith("40 offsets below the start offsets of 2 share partition(s)")
    assert "ACKTRAIL_TABLES" in notice.text
    assert [*sums(plan).values()][2:4] == ["unknown", "at least 3"]
    assert "\n  archived before:                     at least 3\n" in plan_text(plan)


@pytest.mark.parametrize(("rule", "allowance", "changes"), CASES["allowances"])
def test_an_allowance_turns_a_refusal_into_a_serious_warning(
    rule: str, allowance: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Skipping, making a group, going blind: only where it was said."""
    snapshot = scene_of(**changes)
    allowed = a_plan(requested(allowance), snapshot)
    refused = a_plan(requested({k: v for k, v in allowance.items() if not isinstance(v, bool)}), snapshot)

    assert rule in rules(allowed, Severity.SERIOUS)
    assert allowed.refusals == ()
    assert refused.refusals != ()


def test_partial_leaves_out_what_is_refused_and_nothing_else() -> None:
    """A refused partition, topic or group takes its own share partitions out."""
    other = replace(TOPIC, topic="gone", error_code=3, error="X", topic_id=None, partition_count=0)
    plan = a_plan(
        a_request(),
        a_snapshot(
            partition_facts(),
            partition_facts(partition=9),
            partition_facts(topic="gone"),
            partition_facts(group_id="busy"),
            topics=(TOPIC, other),
            groups=(group_facts(), group_facts("busy", members=("m",))),
        ),
    )

    assert [row.key for row in plan.executable(partial=True)] == [("g", "orders", 0)]
    assert plan.totals.refused_partitions == 3
    refused = RefusedParts(plan.refusals)
    assert [row.key in refused for row in plan.partitions] == [False, True, True, True]


def test_an_unknown_number_makes_an_unknown_total() -> None:
    """None is not zero."""
    blind = partition_facts(partition=1, state=None, state_reason="READ")
    plan = a_plan(a_request(without_state=True), a_snapshot(partition_facts(), blind))

    assert plan.totals.delivered_again is None
    assert plan.totals.to_deliver == 180


def test_of_many_share_partitions_those_are_shown_that_most_happens_to() -> None:
    """Refused ones first, each in one word, then what is not known; a deletion gives no offset, and refuses nothing by
    that."""
    (row,) = a_plan().partitions
    assert row.impact is not None
    skips, unknown = (replace(row, partition=n, impact=replace(row.impact, skipped=s)) for n, s in ((2, 9), (3, None)))
    plan = replace(a_plan(), partitions=(row, replace(row, partition=1, target_offset=None), skips, unknown))

    assert [each.partition for each in shown_partitions(plan, 4)] == [0, 1, 2, 3]
    found = [(each.new_offset, each.skipped) for each in shown_partitions(plan, 3)]
    assert found == [("refused", 0), (row.target_offset, None), (row.target_offset, 9)]
    assert shown_partitions(replace(plan, kind="delete_groups"), 4)[1].new_offset == "unknown"


def test_a_missing_right_is_a_configuration_to_fix() -> None:
    """On the state topic, or READ on the topic: exit code 3, and the error names the ACL as the broker's refusal
    does."""
    cluster = replace(CLUSTER, state_topic_id=None, state_reason="READ is missing")
    plan = a_plan(a_request(), a_snapshot(cluster=cluster))
    error = refusal_error(plan.refusals, plan.groups)
    assert (error.exit_code, "--without-state" in error.hint) == (3, True)
    refused = Notice(severity=Severity.REFUSAL, rule="unauthorized_topic", text="READ is missing", topic="orders")
    error = refusal_error([refused, refused], ())
    assert error.exit_code == 3
    assert all(part in error.message for part in ("READ on topic 'orders'", "unauthorized_topic", "1 more"))


@pytest.mark.parametrize("error", [GroupNotEmpty("g", members=[]), ChangeRefused("not_approved", "it is not approved")])
def test_a_new_plan_that_is_refused_when_it_is_sent_is_stored_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: AcktrailError
) -> None:
    """Whoever is asked to approve it needs its id, and nothing was printed."""
    from acktrail.cli.change.change_preview import keep_or_execute

    def refused(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("acktrail.change.api.execute", refused)
    plan, tables = a_plan(), TablesConfig(uri=str(tmp_path))
    with pytest.raises(AcktrailError) as caught:
        keep_or_execute(cast("Cluster", None), plan, tables, execute=True, as_json=False)
    assert (plan.plan_id in caught.value.hint, caught.value.data["plan"]) == (True, plan.plan_id)
    assert load_plan(tables, plan.plan_id) == plan


def test_tables_that_are_made_by_the_way_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt root is a new one for a command that writes: one line says so, once, and where it is."""
    file, root = tmp_path / "plan.json", tmp_path / "mispelt"
    file.write_text(plan_json(a_plan()))
    first, second = (run(capsys, "change", "reject", str(file), "--tables", str(root)) for _ in range(2))
    assert (first.code, second.code, second.stderr) == (0, 0, "")
    assert first.stderr == f"new tables were made at {root}: there is no such folder\n"
