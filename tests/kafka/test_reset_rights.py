"""Resets by principals that may not do everything: what is missing is named before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from change.world import World
from servers.workload import Workload, until

from acktrail.embedded import EmbeddedBroker
from acktrail.errors import NotAuthorized
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import Outcome

pytestmark = pytest.mark.broker


def refusals(plan: dict[str, Any]) -> set[tuple[str, str | None]]:
    return {(n["rule"], n["topic"]) for n in plan["notices"] if n["severity"] == "refusal"}


def test_missing_rights_are_refusals_by_name(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """R004-16, R004-17, R002-50: without READ on group, topic or state topic there is no plan; what may be reset
    is, with `partial`; without the state topic only by the broker's answer, and only where that was asked for."""
    world = World.at(guarded.config("resetter"), tmp_path)
    for kind, name in (("GROUP", "g"), ("TOPIC", "orders"), ("TOPIC", "forbidden")):
        guarded_workload.allow("resetter", "DESCRIBE", kind, name)
    guarded_workload.create_topic("forbidden")
    asked: dict[str, Any] = {"groups": ["g"], "topics": ["orders", "forbidden"], "strategies": {"to-earliest": None}}
    everything = {
        ("unauthorized_group", None),
        ("unauthorized_topic", "orders"),
        ("unauthorized_topic", "forbidden"),
        ("state_unreadable", None),
        ("state_unreadable", "orders"),
        ("state_unreadable", "forbidden"),
    }
    until(lambda: refusals(world.plan(**asked)) == everything, what="every refusal")

    guarded_workload.allow("resetter", "READ", "GROUP", "g")
    guarded_workload.allow("resetter", "READ", "TOPIC", "orders")
    blind = {**asked, "without_state": True}
    until(lambda: refusals(world.plan(**blind)) == {("unauthorized_topic", "forbidden")}, what="the rights")
    plan = world.plan(**blind)
    assert plan["totals"]["delivered_again"] is None
    world.execute(plan, partial=True)
    assert [(r["topic"], r["status"]) for r in world.verify(plan)] == [("orders", "OK_BY_DESCRIPTION")]

    guarded_workload.allow("resetter", "READ", "TOPIC", "__share_group_state")
    until(lambda: refusals(world.plan(**asked)) == {("unauthorized_topic", "forbidden")}, what="the right to read")
    world.execute(seeing := world.plan(**asked), partial=True)
    assert [row["status"][:2] for row in world.verify(seeing)] == ["OK"]


def test_all_topics_leave_none_out_unsaid(guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path) -> None:
    """A group's topic that may not be described is missing in the brokers' answer without an error. A reset of all
    topics and a deletion of the group name it by the id in its state, and one that is gone forbids nothing; without the
    state topic the plan says that there may be such topics."""
    world, group = World.at(guarded.config("half-sighted"), tmp_path), "of-three-topics"
    for topic in ("in-sight", "out-of-sight", "gone"):
        guarded_workload.create_topic(topic)
        guarded_workload.produce(topic, 2)
        guarded_workload.acknowledge(group, topic, 2)
    with ShareGroupAdmin(guarded.config("admin")) as owner:
        hidden = owner.topics(["out-of-sight"])[0].topic_id
        guarded_workload.delete_topic("gone")
        until(lambda: owner.topics(["gone"])[0].error_code, what="the deletion")
        for kind, name in (("GROUP", group), ("TOPIC", "in-sight")):
            guarded_workload.allow("half-sighted", "READ", kind, name)
        asked: dict[str, Any] = {"groups": [group], "all_topics": True, "strategies": {"to-earliest": None}}
        blind = {**asked, "without_state": True}
        until(lambda: [row["topic"] for row in world.plan(**blind)["partitions"]] == ["in-sight"], what="the rights")
        assert {n["rule"] for n in world.plan(**blind)["notices"]} >= {"without_state", "topics_unseen"}
        assert refusals(world.plan(**blind)) == set()

        guarded_workload.allow("half-sighted", "READ", "TOPIC", "__share_group_state")
        until(lambda: world.plan(**blind)["cluster"]["state_reason"] is None, what="the right to read")
        assert refusals(world.plan(**asked)) == refusals(world.plan(**blind)) == {("hidden_topic", hidden)}
        assert ("hidden_topic", hidden) in refusals(world.plan_deletion([group]))
        assert ("hidden_topic", hidden) not in refusals(world.plan_deletion([group], ["in-sight"]))
        plan = world.plan(**asked)
        with pytest.raises(NotAuthorized, match=f"DESCRIBE on the topic with id {hidden}"):
            world.execute(plan)
        world.execute(plan, partial=True)
        assert [(row["topic"], row["status"]) for row in world.verify(plan)] == [("in-sight", "OK")]

        guarded_workload.allow("half-sighted", "READ", "TOPIC", "out-of-sight")
        until(lambda: not refusals(world.plan(**asked)), what="the right to describe")
        assert [row["topic"] for row in world.plan(**asked)["partitions"]] == ["in-sight", "out-of-sight"]


def test_a_deletion_asks_for_both_rights(guarded: EmbeddedBroker, guarded_workload: Workload) -> None:
    """R002-51: DELETE on the group and READ on the topic, each named where it is missing; nothing is deleted before."""
    group = topic = "deleted-by-right"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 1)
    guarded_workload.acknowledge(group, topic, 1)

    with ShareGroupAdmin(guarded.config("deleter")) as admin, ShareGroupAdmin(guarded.config("admin")) as owner:

        def said() -> tuple[Outcome, int | None, bool]:
            (result,) = admin.delete_offsets(group, [topic])
            return result.outcome, result.error_code, "DELETE" in result.advice

        until(lambda: said() == (Outcome.REFUSED, 30, True), what="the refusal on the group")
        guarded_workload.allow("deleter", "DELETE", "GROUP", group)
        until(lambda: said()[:2] == (Outcome.REFUSED, 29), what="the refusal on the topic")
        assert [offset.topic for offset in owner.describe_offsets(group)] == [topic]
        guarded_workload.allow("deleter", "READ", "TOPIC", topic)
        until(lambda: said()[0] is Outcome.DONE, what="the deletion")
        assert owner.describe_offsets(group) == ()
