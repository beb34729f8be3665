"""Deletions and configurations: previewed, carried out only as previewed, verified, audited. On a real broker."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from change.world import World
from drivers.command_line import run
from servers.workload import start_at

from acktrail.kafka.admin import ShareGroupAdmin

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
    """R004-31: a share group goes, with its state; a consumer group, which Kafka would delete as well, is refused."""
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


def test_configurations_are_set_and_unset(world: World, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown, set, unset; a name or value that is none is refused."""
    setting = "share.auto.offset.reset=earliest"
    wanted = ("groups", "config", "set", "--group", group)
    assert "[changes]" in command(capsys, world, *wanted, setting).stdout
    assert command(capsys, world, "groups", "config", "show", group).stdout == "nothing is set on the group itself\n"
    assert command(capsys, world, *wanted, setting, "--execute").code == 0
    (shown,) = command(capsys, world, "groups", "config", "show", group, "--json").rows
    assert (shown["own"], shown["configs"]["share.auto.offset.reset"]) == (["share.auto.offset.reset"], "earliest")
    assert "[nothing_to_change]" in command(capsys, world, *wanted, setting, "--execute").complaint(2)
    assert "share.auto.offset.reset" in command(capsys, world, *wanted, "share.auto.offset.rest=x").stderr
    bogus = command(capsys, world, *wanted, "share.auto.offset.reset=bogus", "--execute")
    assert bogus.code == 2
    assert "bogus" in bogus.stderr
    assert command(capsys, world, *wanted, "--unset", "share.auto.offset.reset", "--execute").code == 0
    assert command(capsys, world, "groups", "config", "show", group).stdout == "nothing is set on the group itself\n"
    assert "[bad_setting]" in command(capsys, world, *wanted, "no-equals-sign").complaint(2)
