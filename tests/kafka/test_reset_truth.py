"""What a plan says is the whole truth, and what changes before its request is sent is seen. On two releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType, Producer
from samples.history_tables import build
from servers.guarded_broker import GuardedBroker
from servers.real_broker import releases
from servers.workload import Workload, start_at, until

from acktrail.change.apply import reset_execution
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import Journal
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.config import TablesConfig
from acktrail.dataclass_json import from_json_value, to_json_value
from acktrail.errors import NotAuthorized, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.tables.delta.store import Tables
from acktrail.view.change_text import plan_text
from acktrail_connect.export.export_run import export
from acktrail_embedded import DEFAULT_VERSION
from acktrail_expectations.reset_gate import validate_plan

pytestmark = pytest.mark.broker

TOPICS = ("races-a", "races-b")
RECORDS = 8
START = 5
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.4.0"))
def server(request: pytest.FixtureRequest) -> Iterator[GuardedBroker]:
    """A broker with logins and ACLs of each release."""
    if request.param == DEFAULT_VERSION:
        yield request.getfixturevalue("guarded")
        return
    with GuardedBroker({name: f"{name}-secret" for name in ("admin", "revoked")}, request.param) as broker:
        yield broker


@pytest.fixture(scope="module")
def world(server: GuardedBroker, tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World.at(server.config(), tmp_path_factory.mktemp("races"))
    for topic in TOPICS:
        found.make_topic(topic, 1, RECORDS)
    return found


@pytest.fixture
def group(world: World) -> str:
    """A group without members that starts at 5 in both topics."""
    name = f"g-{uuid4().hex[:8]}"
    start_at(world.kafka, name, {(topic, 0): START for topic in TOPICS})
    return name


def plan_to(world: World, group: str, offset: int, topic: str = TOPICS[0]) -> dict[str, Any]:
    return world.plan(groups=[group], topics=[topic], strategies={"to-offset": str(offset)}, allow_skip=True)


def once(patched: pytest.MonkeyPatch, where: Any, name: str, act: Callable[[], Any], when: Callable[..., bool]) -> None:
    """Run `act` once, right after the first call of a function for which `when` holds."""
    original, left = getattr(where, name), [act]

    def called(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if left and when(*arguments):
            left.pop()()
        return result

    patched.setattr(where, name, called)


def has_event(event: Event) -> Callable[..., bool]:
    return lambda _journal, entries, **_: any(entry.event is event for entry in entries)


@pytest.mark.few(2)
@pytest.mark.parametrize("target", [3, START], ids=["elsewhere", "to-where-it-is"])
@pytest.mark.parametrize("moment", ["lease", "look", "row"])
def test_of_two_applies_with_tables_of_their_own_one_sends(
    world: World, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, target: int
) -> None:
    """Two processes with different tables cannot see each other's lease. Wherever the one comes between the steps of
    the other, up to the last look before its request, that other one is refused and sends nothing."""
    second = replace(world, tables=TablesConfig(uri=str(tmp_path / "other")))
    mine, theirs = plan_to(world, group, 0), plan_to(second, group, target)

    def overtake() -> None:
        second.execute(theirs)
        assert {row["status"][:2] for row in second.verify(theirs)} == {"OK"}

    if moment == "look":
        once(monkeypatch, reset_execution.ResetAttempt, "compare", overtake, lambda _: True)
    else:
        event = Event.LEASE_TAKEN if moment == "lease" else Event.BEFORE_CALL
        once(monkeypatch, Journal, "note", overtake, has_event(event))
    if moment == "lease" and target == START:
        world.execute(mine)
        assert world.starts(group)[0] == 0, "what the other one did was over before the first look, and changed nothing"
        return
    with pytest.raises(PlanStale):
        world.execute(mine)
    assert world.starts(group)[0] == target
    assert world.standing(mine["plan_id"]) == "REFUSED"
    assert world.verify(mine) == []


def test_a_group_that_moved_is_not_sent_and_the_others_are_known(
    world: World, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two groups the second one moves after the first one was sent: it is named as not sent."""
    other = f"z{group}"
    start_at(world.kafka, other, {(TOPICS[0], 0): START})
    plan = world.plan(groups=[group, other], topics=[TOPICS[0]], strategies={"to-earliest": None})

    reset_the_other = partial(start_at, world.kafka, other, {(TOPICS[0], 0): 2})
    once(monkeypatch, Journal, "note", reset_the_other, has_event(Event.AFTER_CALL))
    done = world.execute(plan)

    assert [*done["not_sent"]] == [other]
    assert (world.starts(group)[0], world.starts(other)[0]) == (0, 2)
    assert [row["group_id"] for row in world.verify(plan)] == [group]


def test_a_right_revoked_after_the_plan_sends_nothing(
    server: GuardedBroker, world: World, group: str, tmp_path: Path
) -> None:
    """READ on one of two topics, or on the group, is revoked between plan and apply: nothing is changed anywhere."""
    workload = Workload(server.config())
    resetter = World.at(server.config("revoked"), tmp_path)
    granted = [("TOPIC", "__share_group_state"), ("GROUP", group), *(("TOPIC", topic) for topic in TOPICS)]
    for kind, name in granted:
        workload.allow("revoked", "READ", kind, name)
        workload.allow("revoked", "DESCRIBE", kind, name)

    def allowed() -> dict[str, Any] | None:
        plan = resetter.plan(groups=[group], topics=list(TOPICS), strategies={"to-earliest": None})
        return plan if not [n for n in plan["notices"] if n["severity"] == "refusal"] else None

    until(lambda: allowed() is not None, what="the rights")
    plan = allowed()
    assert plan is not None
    for kind, name, rule in (("TOPIC", TOPICS[1], "unauthorized_topic"), ("GROUP", group, "unauthorized_group")):
        workload.revoke("revoked", "READ", kind, name)

        def is_revoked(kind: str = kind, name: str = name) -> bool:
            with ShareGroupAdmin(resetter.kafka) as admin:
                rights = admin.rights([group], TOPICS)
                return "READ" not in ((rights.groups if kind == "GROUP" else rights.topics)[name] or ())

        until(is_revoked, what="the revocation")
        with pytest.raises(NotAuthorized) as caught:
            resetter.execute(plan)
        assert caught.value.data["rule"] == rule
        assert world.starts(group) == [START, START]
        workload.allow("revoked", "READ", kind, name)
        until(lambda: not is_revoked(), what="the right again")  # called at once
    resetter.execute(plan)
    assert world.starts(group) == [0, 0]


def tell_history(world: World) -> None:
    """Export what is new, and bring the history up to date."""
    export(world.kafka, world.tables)
    build(Tables(world.tables))


def test_poison_below_the_start_offset_is_counted_from_the_history(world: World, tmp_path: Path) -> None:
    """Records that were rejected or accepted before the start offset moved past them are counted as far as the history
    shows: not at all without tables or before the first export, all of them with it; where it is behind, it is read on
    in Kafka. A reset and its undo take none of them away."""
    topic, group = f"poison-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    here = replace(world, tables=TablesConfig(uri=str(tmp_path / "tables")))
    world.make_topic(topic, 1, 20)
    fates = {**dict.fromkeys(range(8), REJECT), **dict.fromkeys(range(8, 12), ACCEPT)}
    world.settle(group, topic, 20, lambda part: fates.get(part[1], RELEASE))
    world.settle(group, topic, 8, lambda part: REJECT if part[1] < 14 else RELEASE)
    assert (world.starts(group)[0] or 0) >= 12, "the start offset is past the first ones"

    def totals(tables: TablesConfig | None) -> dict[str, Any]:
        with_tables = replace(world, tables=tables)
        plan = with_tables.plan(groups=[group], topics=[topic], strategies={"to-earliest": None})
        assert plan["totals"]["to_deliver"] == 20
        return {"rules": {notice["rule"] for notice in plan["notices"]}, **plan["totals"]}

    blind = totals(None)
    assert (blind["archived_forgotten"], blind["acknowledgements_forgotten"]) == (None, None)
    assert "passed_unknown" in blind["rules"]
    assert totals(here.tables)["archived_forgotten"] is None, "nothing was exported"
    tell_history(here)
    told = totals(here.tables)
    assert (told["archived_forgotten"], told["acknowledgements_forgotten"]) == (10, 4)
    assert "passed_unknown" not in told["rules"]

    plan = here.reset(groups=[group], topics=[topic], strategies={"to-earliest": None})
    undo = here.undo(plan)
    here.execute(undo)
    here.verify(undo)
    behind = totals(here.tables)
    assert (behind["archived_forgotten"], behind["acknowledgements_forgotten"]) == (10, 4), "read on in Kafka"
    world.settle(group, topic, 6, lambda part: REJECT if part[1] < 16 else ACCEPT)
    told = totals(here.tables)
    assert (told["archived_forgotten"], told["acknowledgements_forgotten"]) == (12, 8)
    tell_history(here)
    assert totals(here.tables) == told


def test_a_plan_of_another_cluster_does_not_bind_fresh_tables(world: World, group: str, tmp_path: Path) -> None:
    """It is refused before anything is stored: the tables stay free for the cluster that they are meant for."""
    fresh = replace(world, tables=TablesConfig(uri=str(tmp_path / "fresh")))
    plan = from_json_value(ResetPlan, plan_to(world, group, 0))
    other = to_json_value(with_hash(replace(plan, cluster=replace(plan.cluster, cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))))
    with pytest.raises(PlanStale) as caught:
        fresh.execute(other)
    assert caught.value.rule == "other_cluster"
    assert not list(tmp_path.rglob("*.json")), "no table was made"
    assert world.starts(group) == [START, START]


def in_transactions(world: World, topic: str) -> None:
    """Committed records 0 to 4 and marker 5, aborted ones 6 to 8 and marker 9, plain ones 10 and 11."""
    world.make_topic(topic, 1, 0)
    producer = Producer({**to_librdkafka(world.kafka), "transactional.id": topic})
    producer.init_transactions()
    for count, end in ((5, producer.commit_transaction), (3, producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, str(number).encode())
        producer.flush()
        end()
    world.workload.produce(topic, 2)


@pytest.mark.few(1)
@pytest.mark.parametrize(("level", "comes"), [("read_committed", 7), ("read_uncommitted", 10)])
def test_every_number_of_a_plan_counts_what_a_share_consumer_gets(
    world: World, tmp_path: Path, level: str, comes: int
) -> None:
    """Markers of transactions are in no number, records of aborted transactions in those of read_uncommitted groups
    alone: to deliver, again, forgotten, archived, skipped, in flight. The gate finds that they add up."""
    topic, group = f"hidden-{uuid4().hex[:8]}", f"{level}-{uuid4().hex[:8]}"
    here = replace(world, tables=TablesConfig(uri=str(tmp_path)))
    in_transactions(world, topic)
    world.workload.configure_group(group, share_isolation_level=level)
    start_at(world.kafka, group, {(topic, 0): 0})
    latest = {"groups": [group], "topics": [topic], "strategies": {"to-latest": None}, "allow_skip": True}
    fresh = here.plan(**latest)["totals"]
    assert (fresh["unit"], fresh["to_deliver"], fresh["skipped"]) == ("records", 0, comes), "as many as will come"

    world.settle(group, topic, comes, lambda part: {2: RELEASE, 4: REJECT}.get(part[1], ACCEPT))
    tell_history(here)
    begun = here.plan(**latest)["totals"]
    assert (begun["skipped"], begun["in_flight_discarded"]) == (1, 1), "what was released"
    plan = here.reset(groups=[group], topics=[topic], strategies={"to-earliest": None})
    totals = plan["totals"]
    assert (totals["to_deliver"], totals["hidden_ahead"], totals["delivered_again"]) == (comes, 12 - comes, comes - 1)
    assert (totals["acknowledgements_forgotten"], totals["archived_forgotten"]) == (comes - 2, 1)
    texts = [notice["text"] for notice in plan["notices"]]
    assert f"{comes - 1} records that the group had finished are delivered again" in texts
    assert "1 archived records (possibly poison records) are delivered again" in texts
    assert f"new start offsets on: {comes}\n" in plan_text(from_json_value(ResetPlan, plan))
    here.store(plan)
    assert validate_plan(here.tables, plan["plan_id"]).failed == ()
    assert len(world.deliveries(group, topic, comes)) == comes


def test_a_transaction_that_is_open_is_counted_where_its_end_does_not_matter(world: World, tmp_path: Path) -> None:
    """A read_uncommitted group gets its records now; what a read_committed one will get is not known: offsets are
    counted, and the plan says so."""
    topic, here = f"open-{uuid4().hex[:8]}", replace(world, tables=TablesConfig(uri=str(tmp_path)))
    in_transactions(world, topic)
    producer = Producer({**to_librdkafka(world.kafka), "transactional.id": f"{topic}-2"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"undecided")
    producer.flush()
    for level, unit, ahead in (("read_uncommitted", "records", 11), ("read_committed", "offsets", 13)):
        group = f"{level}-{uuid4().hex[:8]}"
        world.workload.configure_group(group, share_isolation_level=level)
        start_at(world.kafka, group, {(topic, 0): 0})
        plan = here.plan(groups=[group], topics=[topic], strategies={"to-earliest": None})
        assert (plan["totals"]["unit"], plan["totals"]["to_deliver"]) == (unit, ahead)
        assert ("offsets_not_records" in {notice["rule"] for notice in plan["notices"]}) is (unit == "offsets")
        shown = plan_text(from_json_value(ResetPlan, plan))
        assert ("13 offsets (with control records" in shown) is (unit == "offsets")
    producer.abort_transaction()
