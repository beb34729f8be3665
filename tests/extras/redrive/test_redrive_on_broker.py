"""Archived records put back on a real broker: each once, whatever happens to the process that writes them."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType
from drivers.command_line import Done, run
from drivers.whole_topic import messages_of
from extras.redrive.poisoned import ALL, PARTITIONS, POISON, RECORDS, Poisoned

from acktrail.change import api
from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.change_kind import Pace, Settled
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import with_hash
from acktrail.errors import ChangeInProgress, ChangeRefused, InputError, OutcomeUnknown, PlanStale
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail_redrive import put_back

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture
def ask(poisoned: Poisoned, capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*words: str) -> Done:
        return run(capsys, "change", *words, *poisoned.arguments())

    return command


def test_records_are_put_back_as_they_were(poisoned: Poisoned, ask: Any) -> None:
    """By command: the first three, then the rest of the same plan, then nothing more. Key, value, time, headers and
    partition are kept, and headers say where a record comes from. The table has its new place."""
    topic = poisoned.target()
    words = ("--group", poisoned.name, "--to", topic, "--most-attempts", "99", "--json")
    plan = json.loads(ask("plan", "redrive", *words).stdout)
    assert plan["strategy"] == f"put back {POISON} records into {topic}; no group reads it yet"
    assert (plan["records"], plan["unread"], plan["by_cause"]) == (
        POISON,
        [],
        [{"cause": "rejected", "records": POISON}],
    )
    rules = {notice["rule"] for notice in plan["notices"]}
    assert rules == {"later_finished"}
    (would,) = ask("apply", plan["plan_id"], "--json").answer["parts"]
    assert (would["records"], would["into"]) == (POISON, topic)
    assert poisoned.arrived(topic) == []
    first = ask("apply", plan["plan_id"], "--execute", "--first", "3")
    assert (first.code, len(poisoned.arrived(topic))) == (7, 3), first
    assert f"3 of {POISON} records put back" in first.stdout
    done = ask("apply", plan["plan_id"], "--execute")
    assert (done.code, f"{POISON} of {POISON} records put back" in done.stdout) == (0, True), done
    assert ask("apply", plan["plan_id"], "--execute").stdout.startswith("everything is done already")
    assert poisoned.arrived(topic) == ALL
    assert "[no_undo]" in run_complaint(ask, "undo", plan["plan_id"])
    properties = {**to_librdkafka(poisoned.kafka), "isolation.level": "read_committed"}
    for message in messages_of(properties, topic):
        headers = dict(message.headers())
        offset = int(headers["acktrail.redrive.offset"])
        assert (message.value(), message.key()) == (str(offset).encode(), f"k{offset % 7}".encode())
        assert (message.timestamp()[1], message.partition()) == (
            1_000 + offset,
            int(headers["acktrail.redrive.partition"]),
        )
        assert (headers["of"], headers["null"], headers["acktrail.redrive.count"]) == (b"test", None, b"1")


def run_complaint(ask: Any, *words: str) -> str:
    return ask(*words).complaint(2)


@pytest.mark.parametrize("point", ["begun", "delivered", "committed"])
def test_killed_redrive_goes_on_exactly_once(poisoned: Poisoned, point: str) -> None:
    """Killed before the second transaction, before its commit, and after it: what was committed stays, what was open
    is aborted, and the same plan goes on. An own reader sees each record once."""
    topic = poisoned.target()
    plan = poisoned.planned(topic)
    poisoned.killed(plan, point, 2)
    with pytest.raises(OutcomeUnknown, match="not verified"):
        poisoned.apply(plan)
    found = poisoned.find_out(plan)
    assert found.groups == {poisoned.name: "partly"}
    assert len(poisoned.arrived(topic)) == {"begun": 5, "delivered": 5, "committed": 10}[point]
    assert len(poisoned.stored(plan)) == len(poisoned.arrived(topic))
    assert poisoned.apply(plan).groups == {poisoned.name: "done"}
    assert poisoned.arrived(topic) == ALL
    poisoned.check_places(plan, topic)
    again = Counter(poisoned.arrived(topic, "read_uncommitted"))
    assert max(again.values()) <= (2 if point == "delivered" else 1)


def test_writer_that_lost_its_lease_does_not_commit(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer stands still after its records were delivered, somebody finds out what became of it. Then its
    commit comes too late, and another attempt writes the records."""
    topic = poisoned.target()
    plan = poisoned.planned(topic)
    looked = Attempt.check_lease
    found: list[Settled] = []

    def overtaken(own: Attempt) -> None:
        if not found:
            with monkeypatch.context() as patched:
                patched.setattr("os.getpid", lambda: 1)  # another process, for which the lease is over
                patched.setattr("acktrail.change.audit.plan_life.Lease.is_held", lambda *_: False)
                found.append(poisoned.find_out(plan))
        looked(own)

    monkeypatch.setattr(Attempt, "check_lease", overtaken)
    with Cluster(poisoned.kafka) as cluster, suppress(Exception):
        api.execute(cluster, api.open_journal(poisoned.tables, plan, actor="ann"), plan)
    assert [one.groups for one in found] == [{poisoned.name: "not_done"}]
    assert poisoned.arrived(topic) == []
    with suppress(Exception):
        poisoned.find_out(plan)
    monkeypatch.undo()
    assert poisoned.apply(plan).groups == {poisoned.name: "done"}
    assert poisoned.arrived(topic) == ALL


def test_two_redrives_at_once(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's lease keeps a second one out; afterwards it finds that its records were put back since."""
    topic = poisoned.target()
    plan, other = poisoned.planned(topic), poisoned.planned(topic)
    refused: list[BaseException] = []
    written = put_back.TransactionalWriter.write

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        with Cluster(poisoned.kafka) as cluster, pytest.raises(ChangeInProgress) as caught:
            api.execute(cluster, api.open_journal(poisoned.tables, other, actor="bob"), other)
        refused.append(caught.value)
        return written(*arguments, **named)

    monkeypatch.setattr(put_back.TransactionalWriter, "write", meanwhile)
    assert poisoned.apply(plan).groups == {poisoned.name: "done"}
    assert len(refused) == 1
    with pytest.raises(PlanStale, match="put_back_since"):
        poisoned.apply(other)
    assert poisoned.arrived(topic) == ALL


def test_what_is_chosen_and_what_is_refused(poisoned: Poisoned) -> None:
    """By partition, offsets, cause, deliveries and number. A record that was put back is left out by the loop guard,
    and so is one whose own headers count as many."""
    topic = poisoned.target(3)

    def chosen(**asked: Any) -> list[tuple[int, int]]:
        plan = poisoned.planned(topic, **asked)
        return [(own.partition, at) for own in plan.sources for a, b in own.ranges for at in range(a, b + 1)]

    assert chosen() == ALL
    assert chosen(partition=1, offsets=(10, 20)) == [(1, 10), (1, 15), (1, 20)]
    own = poisoned.topic
    assert chosen(topic=own, causes=("limit",)) == chosen(topic=own, least_deliveries=2) == []
    with pytest.raises(InputError, match="no archived record"):
        chosen(least_deliveries=2)
    assert chosen(most=3) == ALL[:3]
    plan = poisoned.planned(topic, offsets=(0, 9))
    assert {notice.rule for notice in plan.notices} >= {"other_partitions", "later_finished"}
    assert poisoned.apply(plan).groups == {poisoned.name: "done"}
    assert len(chosen(most_attempts=1)) < POISON - 3
    guarded = poisoned.planned(topic, most_attempts=1, offsets=(0, 9))
    assert [notice.rule for notice in guarded.refusals] == ["nothing_to_put_back"]
    assert all("--most-attempts" in own.reason for own in guarded.unread)
    with pytest.raises(ChangeRefused, match="nothing_to_put_back"):
        poisoned.apply(guarded)


def test_changed_topics_and_plans_are_refused(poisoned: Poisoned) -> None:
    """A target that was deleted and created again, an edited list, another number than the list has."""
    topic = poisoned.target()
    plan = poisoned.planned(topic)
    poisoned.workload.delete_topic(topic)
    poisoned.workload.create_topic(topic, PARTITIONS)
    with pytest.raises(PlanStale, match="topic_changed"):
        poisoned.apply(plan)
    with pytest.raises(PlanStale, match="edited_plan"):
        poisoned.apply(replace(plan, records=1))
    with pytest.raises(PlanStale, match="edited_plan"):
        poisoned.apply(with_hash(replace(plan, sources=plan.sources[:1])))
    assert poisoned.arrived(topic) == []
    compacted = poisoned.planned(poisoned.target(**{"cleanup.policy": "compact"}))
    small = poisoned.planned(poisoned.target(**{"max.message.bytes": "300"}))
    internal = poisoned.planned("__consumer_offsets")
    assert "replaces_newer" in {notice.rule for notice in compacted.notices}
    assert [notice.rule for notice in small.refusals] == ["too_large"]
    assert [notice.rule for notice in internal.refusals] == ["internal_topic"]


def test_source_topic_and_its_other_group(poisoned: Poisoned) -> None:
    """Into the source, with another group that reads it: the plan names it. The group gets each record again, once."""
    other = f"{poisoned.name}-other"
    accept = AcknowledgeType.ACCEPT
    poisoned.settle(other, poisoned.topic, RECORDS * PARTITIONS, lambda _: accept)
    plan = poisoned.planned("")
    assert plan.strategy.endswith(f"{poisoned.name} gets them again, so do {other}")
    assert "other_groups" in {notice.rule for notice in plan.notices}
    assert poisoned.apply(plan, Pace(rate=500.0)).groups == {poisoned.name: "done"}
    got = poisoned.deliveries(poisoned.name, poisoned.topic, POISON)
    assert Counter(one.partition for one in got) == dict.fromkeys(range(PARTITIONS), POISON // PARTITIONS)
    rows = poisoned.stored(plan)
    assert {(one.partition, one.offset) for one in got} == {
        (row["target_partition"], row["target_offset"]) for row in rows
    }


@pytest.mark.full
def test_killed_thirty_times(poisoned: Poisoned) -> None:
    """One plan, whose process is killed again and again, in turn at each point of a transaction."""
    topic = poisoned.target()
    plan = poisoned.planned(topic)
    for number in range(30):
        poisoned.killed(plan, ("begun", "delivered", "committed")[number % 3], 1, size=1)
        poisoned.find_out(plan)
    assert len(poisoned.arrived(topic)) == 10
    assert poisoned.apply(plan).groups == {poisoned.name: "done"}
    assert poisoned.arrived(topic) == ALL
    poisoned.check_places(plan, topic)


def test_plan_as_json_is_read_back(poisoned: Poisoned) -> None:
    """A plan is what its file says."""
    from acktrail.change.change_kind import parse_plan
    from acktrail.change.plan.change_plan import plan_json

    plan = poisoned.planned(poisoned.target())
    assert parse_plan(plan_json(plan), "plan") == plan
    assert json.loads(plan_json(plan))["sources"][0]["ranges"][0] == [0, 0]
