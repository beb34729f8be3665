"""Plans of expansions, settings, what a look is worth, and what ``acktrail expand show`` says; without a broker."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from extras.expansion.support.rows import SETTLING, STRANGE, TROUBLE, rows_of, write_rows
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.change_kind import parse_plan
from acktrail.change.plan.change_plan import hash_of, plan_json, with_hash
from acktrail.change.plan.snapshot_facts import ClusterFacts
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, InputError
from acktrail.kafka.descriptions import TopicPartition
from acktrail.tables.delta.store import Tables
from acktrail.view.change_text import plan_text
from acktrail_expansion.change.expansion_kind import key_line
from acktrail_expansion.change.expansion_plan import ExpansionPlan, GroupOnTopic
from acktrail_expansion.observations.ledger_connector import ListedTopic, topic_rows
from acktrail_expansion.ordering.order import KeyMapping
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time


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


def test_what_a_person_reads_follows_from_the_counts() -> None:
    """An edited file whose hash was made again is refused."""
    plan = a_plan(3, a_group(is_ordered=True, open_records=7))
    edits: tuple[dict[str, Any], ...] = ({"strategy": "expand"}, {"moving": "1/9"}, {"notices": ()}, {"kind": "reset"})
    for edit in edits:
        made = replace(plan, **edit)
        with pytest.raises(InputError):
            parse_plan(plan_json(replace(made, plan_hash=hash_of(made))), "f")
    assert parse_plan(plan_json(plan), "f") == plan


__all__ = ["HOSTILE", "a_group", "a_plan"]

HOSTILE = "g|`<b>[x](javascript:1)</b>\x1b[31m\n# head'; drop"


def a_group(group_id: str = "desk", **more: Any) -> GroupOnTopic:
    """A share group that has finished everything."""
    given = {"group_type": "share", "is_ordered": False, "begins_at": "earliest", "open_records": 0, "unknown": 0}
    return GroupOnTopic(group_id=group_id, **{**given, "most_open": (), **more})


def a_plan(
    new_count: int, *groups: GroupOnTopic, old_count: int = 2, mapping: KeyMapping = KeyMapping.MURMUR2, **more: Any
) -> ExpansionPlan:
    """The plan for a topic on a new broker."""
    release = more.pop("release", "4.4 or later")
    cluster = ClusterFacts(
        cluster_id="c", release=release, resets_share_groups=True, state_topic_id=None, state_reason=None
    )
    given = {"topic": "orders", "topic_id": "id", "is_compacted": False}
    given |= {"cluster": cluster}
    given |= {"old_count": old_count, "new_count": new_count, "key_mapping": mapping, "settle_ms": 420_000}
    given |= {"readers": groups, "groups_not_asked": ()}
    given |= {"plan_id": "p1", "created_at_ms": 0, "created_by": "ann", "requested_by": "", "reason": ""}
    return with_hash(ExpansionPlan(**{**given, **more}))


def test_the_first_glob_that_fits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By exact case; a topic without a mapping has none, and no group is ordered unless it is named."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "orders = murmur2, legacy-*=crc32 ,*=none,")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "billing, ship-*")
    mapping_of, groups = key_mappings(), ordered_groups()
    mapped = [mapping_of(topic) for topic in ("orders", "legacy-a", "legacy", "Orders")]
    assert mapped == ["murmur2", "crc32", "none", "none"]
    assert [each in groups for each in ("billing", "ship-1", "shipping", "Billing", "")] == [True, True, *[False] * 3]
    monkeypatch.delenv("ACKTRAIL_ORDERED_GROUPS")
    assert "billing" not in ordered_groups()


@pytest.mark.parametrize("text", ["orders=murmur3", "=murmur2", "orders=murmur2,crc32", "orders="])
def test_a_wrong_mapping_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The message has the variable and the entry."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", text)
    with pytest.raises(ConfigurationError, match=f"ACKTRAIL_KEY_MAPPINGS: '{text.rsplit(',', maxsplit=1)[-1]}'"):
        key_mappings()


@pytest.mark.parametrize(("text", "seconds"), [("", 900), ("90s", 90), ("24h", 86_400), ("0s", 0)])
def test_the_settle_time(monkeypatch: pytest.MonkeyPatch, text: str, seconds: int) -> None:
    """A quarter of an hour unless given, at most a day."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", text)
    assert settle_time().total_seconds() == seconds
    monkeypatch.setenv("ACKTRAIL_SETTLE", "25h")
    with pytest.raises(ConfigurationError, match="ACKTRAIL_SETTLE"):
        settle_time()


@pytest.mark.parametrize(
    ("first", "counts", "error", "consistency"),
    [
        (2, (2, 2), 0, "consistent"),
        (2, (2, 2), 6, "partial"),
        (2, (2, 3), 0, "straddles"),
        (3, (2, 3), 6, "straddles"),
        (2, (3, 3), 0, "straddles"),
        (2, (2, None), 0, "straddles"),
    ],
)
def test_one_broker_that_knows_more_spoils_the_look(
    first: int, counts: tuple[int | None, ...], error: int, consistency: str
) -> None:
    """A producer may have asked the broker that knows: ends of such a look are no low fence. None: silence."""
    topic = ListedTopic(name="orders", topic_id="id", leaders=((0, 0),) * first)
    logs = {TopicPartition(topic="orders", partition=number): {"error_code": error} for number in range(first)}
    rows = [*topic_rows(topic, [None if count is None else ("id", count) for count in counts], logs)]
    assert [(row["consistency"], row["partition_count"]) for row in rows] == [(consistency, first)] * first


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line an expansion, the worst first; of one its verdicts in words, the worst first, with what is not seen beside
    `safe`, fences, what is not certain. Names move no cursor. Without an audit, and of an unknown id, that is said."""

    def show(*words: str) -> Done:
        return run(capsys, "expand", "show", *words, "--tables", str(tmp_path))

    tables = Tables(TablesConfig(uri=str(tmp_path)))
    tables.create("topics")
    assert "acktrail expand check" in show().stdout
    write_rows(tables, rows_of(SETTLING, TROUBLE, STRANGE))
    lines = show().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "TOPIC",
        "orders",
        "clicks",
        "<script>document.title='owned'</script>",
    ]
    assert "1 order broken, 1 first records skipped, 1 not proven, 2 safe" in lines[1]
    first, *_ = show("--json").rows
    assert (first["skipped_records"], first["first_seen_new_at"]) == (624, "2026-11-22T22:04:05Z")

    worst = show(TROUBLE.event_id).stdout.splitlines()[1]
    assert worst.startswith("order broken: share group fraud-scoring: Partition 2 was begun with 58 records of")
    unclear = show(SETTLING.event_id).stdout
    assert "not certain: Whether the topic grew in one step" in unclear
    (form,) = show(SETTLING.event_id, "--json").rows
    assert [fence["fence_high"] for fence in form["fences"]] == [None, None]
    assert {(row["group_id"], row["reason"]) for row in form["verdicts"]} == {("warehouse", "no_fence")}
    strange = show(STRANGE.event_id).stdout
    assert all(line.isprintable() for line in strange.splitlines())
    assert (strange.count("Not seen: work that was not committed"), strange.count("5990")) == (8, 1)
    assert "unknown expansion 'x'" in show("x").complaint(2)
