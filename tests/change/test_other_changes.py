"""Deletions and configurations: previewed, carried out only as previewed, verified, audited. On a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import World
from drivers.command_line import run
from servers.workload import start_at

from acktrail.change.audit.integrity import checked_audit
from acktrail.change.groups.group_kinds import DELETE_OFFSETS
from acktrail.errors import ChangeRefused, OutcomeUnknown, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, NewStartOffset, Outcome

pytestmark = pytest.mark.broker

NAME = f"others-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def topic(world: World) -> str:
    world.make_topic(NAME, 2, 5)
    return NAME


@pytest.fixture
def group(world: World, topic: str) -> str:
    """A group with start offset 2 in both partitions."""
    name = f"g-{uuid4().hex[:8]}"
    start_at(world.kafka, name, {(topic, 0): 2, (topic, 1): 2})
    return name


def described(world: World, group: str) -> int:
    with ShareGroupAdmin(world.kafka) as admin:
        return len(admin.describe_group_offsets([group])[0].offsets)


def command(capsys: pytest.CaptureFixture[str], world: World, *words: str) -> Any:
    where = ("--bootstrap-server", world.kafka.bootstrap_servers)
    return run(capsys, *words, *where, *(("--tables", world.tables.uri) if "--execute" in words else ()))


def test_a_deletion_is_shown_first_and_done_as_shown(
    world: World, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The preview names what is lost and changes nothing."""
    wanted = ("groups", "delete-offsets", "--group", group, "--topic", topic)
    shown = command(capsys, world, *wanted, "--json")
    preview = json.loads(shown.stdout)
    assert (shown.code, described(world, group)) == (0, 2)
    assert {n["rule"] for n in preview["notices"]} == {"state_is_lost", "begins_again", "skips"}
    assert [(row["start_offset"], row["impact"]["skipped"]) for row in preview["partitions"]] == [(2, 3), (2, 3)]

    done = command(capsys, world, *wanted, "--execute", "--json")
    assert json.loads(done.stdout)["groups"] == {group: "DONE"}
    assert described(world, group) == 0
    again = command(capsys, world, *wanted)
    assert (again.code, "[no_such_state]" in again.stderr) == (2, True)


def test_groups_are_deleted_where_they_are_share_groups(
    world: World, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A share group goes, with its state; a consumer group, which Kafka would delete as well, is refused."""
    from confluent_kafka import Consumer, TopicPartition

    from acktrail.kafka.client.client_settings import to_librdkafka

    consumers = f"consumers-{uuid4().hex[:8]}"
    consumer = Consumer({**to_librdkafka(world.kafka), "group.id": consumers})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    refused = command(capsys, world, "groups", "delete", group, consumers, "--execute")
    assert "[not_a_share_group]" in refused.complaint(2)
    assert described(world, group) == 2
    assert command(capsys, world, "groups", "delete", group, "--execute").code == 0
    with ShareGroupAdmin(world.kafka) as admin:
        assert admin.describe_groups([group])[0].error_code == 69
        assert consumers in {listing.group_id for listing in admin.list_groups(("classic", "consumer"))}


def test_members_forbid_a_deletion(world: World, group: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before anything is sent, and the member is named."""
    with world.member(group, topic):
        done = command(capsys, world, "groups", "delete", group)
    assert done.code == 4
    assert "[group_not_empty]" in done.stderr
    assert "a-member" in done.stdout


def test_configurations_are_set_and_unset(world: World, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown, set, compared with the default and with another group, unset; a name or value that is none is refused."""
    setting = "share.auto.offset.reset=earliest"
    wanted = ("groups", "config", "set", "--group", group)
    assert "[changes]" in command(capsys, world, *wanted, setting).stdout
    assert command(capsys, world, "groups", "config", "show", group).stdout == "nothing is set on the group itself\n"
    assert command(capsys, world, *wanted, setting, "--execute").code == 0
    assert "earliest" in command(capsys, world, "groups", "config", "diff", group).stdout
    difference = command(capsys, world, "groups", "config", "diff", group, "nobody", "--json").rows
    assert difference == [{"name": "share.auto.offset.reset", "values": {group: "earliest", "nobody": "latest"}}]
    assert "[nothing_to_change]" in command(capsys, world, *wanted, setting, "--execute").complaint(2)
    assert "share.auto.offset.reset" in command(capsys, world, *wanted, "share.auto.offset.rest=x").stderr
    bogus = command(capsys, world, *wanted, "share.auto.offset.reset=bogus", "--execute")
    assert bogus.code == 2
    assert "bogus" in bogus.stderr
    assert command(capsys, world, *wanted, "--unset", "share.auto.offset.reset", "--execute").code == 0
    assert command(capsys, world, "groups", "config", "diff", group).stdout == "no difference\n"
    assert "[bad_setting]" in command(capsys, world, *wanted, "no-equals-sign").complaint(2)


def test_an_unknown_outcome_is_settled(
    world: World, group: str, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No answer to a deletion that was done: the audit says unknown, then what the cluster shows."""
    send = ShareGroupAdmin.delete_offsets

    def lost(admin: ShareGroupAdmin, group_id: str, topics: Any) -> tuple[ChangeResult, ...]:
        send(admin, group_id, topics)
        return tuple(ChangeResult(group_id=group_id, topic=name, outcome=Outcome.UNKNOWN) for name in topics)

    monkeypatch.setattr(ShareGroupAdmin, "delete_offsets", lost)
    plan = world.plan_deletion([group], [topic])
    done = world.execute_change(plan)
    assert done.groups == {group: "DONE"}
    with pytest.raises(OutcomeUnknown):
        DELETE_OFFSETS.raise_unless_done(done)
    shown = run(capsys, "change", "show", plan["plan_id"], "--tables", world.tables.uri)
    assert "state_is_lost" in shown.stdout
    assert checked_audit(world.tables).flaws == ()


def test_what_moved_since_the_preview_is_not_done(
    world: World, group: str, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A start offset changed between preview and execution, or the plan was edited: nothing is sent."""
    plan = world.plan_deletion([group], [topic])
    edited = json.loads(json.dumps(plan).replace(f'"{topic}"', '"other"'))
    with pytest.raises(PlanStale, match="edited_plan"):
        world.execute_change(edited)
    with ShareGroupAdmin(world.kafka) as admin:
        admin.alter_offsets(group, [NewStartOffset(topic=topic, partition=0, start_offset=4)])
    with pytest.raises(ChangeRefused, match="preview_changed"):
        world.execute_change(plan)
    assert described(world, group) == 2
