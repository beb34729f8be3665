"""Rights on a broker that denies what no ACL allows. The ACLs that `acktrail doctor` suggests are enough and none is
too much; every source says which it lacks; a reset and a deletion name what is missing before anything is sent; members
and brokers may do what they should."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from change.world import World
from confluent_kafka import KafkaException, ShareConsumer
from drivers.command_line import run
from drivers.rights import GROUP, doctor, grant, missing, run_by_kafkas_tool, without
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka_messages import read_state
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import NotAuthorized
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import Outcome
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.granted_acls import granted
from acktrail.model.acls import Acl, Purpose, needed
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import observe

__all__ = ["doctor"]


TOPIC: Final = "of-the-fewest-acls"
USER: Final = "fewest"
LOCK: Final = "share.record.lock.duration.ms"


@pytest.fixture(scope="module", autouse=True)
def _state(guarded_workload: Workload) -> None:
    """Group `GROUP` accepted two records of `TOPIC`."""
    guarded_workload.create_topic(TOPIC)
    guarded_workload.produce(TOPIC, 3)
    guarded_workload.acknowledge(GROUP, TOPIC, 2)


def _is_missing(admin: ShareGroupAdmin, acl: Acl, acls: Sequence[Acl]) -> bool:
    return acl in missing(admin, acls)


def _whole(config: KafkaConfig, folder: Path) -> bool:
    """An observation has the state of the group, and knows everything about it."""
    tables = TablesConfig(uri=str(folder))
    try:
        observe(config, tables)
    except NotAuthorized:
        return False
    stored = Tables(tables)
    groups = [row for row in stored.read("group_observations").to_pylist() if row["group_id"] == GROUP]
    topics = {row["topic"]: row["status"] for row in stored.read("topics").to_pylist()}
    is_known = len(groups) == 2 and all(row["error_code"] == 0 and row["configs"] is not None for row in groups)
    return bool(is_known and topics.get(TOPIC) == "present" and stored.read("state_records").num_rows)


@pytest.mark.slow
def test_the_acls_of_an_export_are_enough_and_none_is_too_much(
    guarded: GuardedBroker, guarded_workload: Workload, doctor: Callable[..., Any], tmp_path: Path
) -> None:
    """Doctor's commands, run by Kafka's own tool, grant exactly what was missing: an observation then is whole, and
    without any one of them it is not, and that one is named."""
    code, checks = doctor(USER, "export")
    assert (code, {check["status"] for check in checks}) == (3, {"missing"})
    assert all(f"--allow-principal User:{USER} " in check["command"] for check in checks)
    run_by_kafkas_tool(guarded, tmp_path, [check["command"] for check in checks])
    config, acls = guarded.config(USER), needed(Purpose.EXPORT)
    with ShareGroupAdmin(config) as admin:
        until(lambda: not missing(admin, acls), what="every ACL")
    code, checks = doctor(USER, "export")
    assert (code, {check["status"] for check in checks}, len(checks)) == (0, {"ok"}, len(acls))
    assert _whole(config, tmp_path / "all")
    for number, acl in enumerate(acls):
        with without(guarded_workload, USER, config, acl, acls):
            assert not _whole(config, tmp_path / str(number)), acl
    code, checks = doctor(USER, "reset", groups=[GROUP])
    assert (code, {check["what"] for check in checks if check["status"] == "missing"}) == (
        3,
        {f"ACL for reset: READ on group {GROUP}", f"ACL for reset: READ on topic {TOPIC}"},
    )
    for acl in acls:
        guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)
    with ShareGroupAdmin(config) as admin:
        until(lambda: missing(admin, acls) == set(acls), what="no ACL")


@pytest.mark.slow
def test_the_acls_of_a_reset_are_enough_and_none_is_too_much(
    guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """With them a reset is planned, carried out and verified in the state topic; without any one it is refused."""
    config, acls = guarded.config(USER), needed(Purpose.RESET, [GROUP], [TOPIC])
    grant(guarded_workload, USER, acls)
    with ShareGroupAdmin(config) as admin:
        until(lambda: not missing(admin, acls), what="every ACL")
    world = World.at(config, tmp_path)
    asked: dict[str, Any] = {"groups": [GROUP], "topics": [TOPIC], "strategies": {"to-earliest": None}}
    for acl in acls:
        with without(guarded_workload, USER, config, acl, acls):
            assert [notice for notice in world.plan(**asked)["notices"] if notice["severity"] == "refusal"], acl
    world.execute(plan := world.plan(**asked))
    assert [row["status"][:2] for row in world.verify(plan)] == ["OK"]


@pytest.mark.slow
@pytest.mark.parametrize("purpose", [Purpose.DELETE_GROUPS, Purpose.DELETE_OFFSETS])
def test_the_acls_of_a_deletion_are_enough_and_none_is_too_much(
    purpose: Purpose, guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """With them a deletion is planned without a doubt, carried out, and verified in the state topic; without any one
    the plan refuses, or knows less."""
    group = topic = f"of-{purpose}"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.acknowledge(group, topic, 2)
    user, topics = "fewest", [topic] if purpose is Purpose.DELETE_OFFSETS else []
    config, acls = guarded.config(user), needed(purpose, [group], [topic])
    grant(guarded_workload, user, acls)
    with ShareGroupAdmin(config) as admin:
        until(lambda: not missing(admin, acls), what="every ACL")
    world = World.at(config, tmp_path)

    def known() -> tuple[list[tuple[str, str]], Any]:
        plan = world.plan_deletion([group], topics)
        notices = [(each["rule"], each["text"]) for each in plan["notices"]]
        return sorted(notices), [(row["topic"], row["start_offset"], row["state"]) for row in plan["partitions"]]

    whole = known()
    for acl in acls:
        with without(guarded_workload, user, config, acl, acls):
            assert known() != whole, acl
    plan = world.plan_deletion([group], topics)
    assert refusals(plan) == set()
    assert {row["status"] for row in world.execute_change(plan).partitions} == {"OK"}


@pytest.mark.slow
def test_the_acls_of_configurations_are_enough_and_none_is_too_much(
    guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With them a configuration is set and shows; without any one nothing is sent."""
    guarded_workload.create_topic(group := "of-configs")
    guarded_workload.produce(group, 1)
    guarded_workload.acknowledge(group, group, 1)
    config, acls = guarded.config(USER), needed(Purpose.GROUP_CONFIGS, [group])
    grant(guarded_workload, USER, acls)
    client = tmp_path / "client.properties"
    client.write_text("".join(f"{key}={value}\n" for key, value in config.properties.items()))
    place = ("--bootstrap-server", guarded.bootstrap_servers, "--client-config", client)

    def changed(lock_ms: str) -> int:
        words = ("--group", group, f"{LOCK}={lock_ms}", "--execute", "--tables", tmp_path / "tables")
        return run(capsys, "groups", "config", "set", *words, *place).code

    with ShareGroupAdmin(config) as admin:
        until(lambda: not missing(admin, acls), what="every ACL")
        for acl in acls:
            guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)
            until(partial(_is_missing, admin, acl, acls), what=f"that {acl} is missing")
            assert changed("20000") != 0, acl
            grant(guarded_workload, USER, [acl])
            until(lambda: not missing(admin, acls), what=f"{acl} again")
        assert changed("20000") == 0
        (found,) = admin.group_configs([group])
    assert (found.configs or {})[LOCK] == "20000"


@pytest.mark.slow
def test_a_super_user_misses_nothing(doctor: Callable[..., Any]) -> None:
    """A super user has every ACL, for all groups and topics too; with a group alone its topics are found."""
    code, checks = doctor("admin", "reset", "export", "offsets")
    assert (code, {check["status"] for check in checks}) == (0, {"ok"})
    code, checks = doctor("admin", "reset", groups=[GROUP])
    assert [shlex.split(check["command"])[-2:] for check in checks] == [
        ["--group", GROUP],
        ["--topic", TOPIC],
        ["--topic", "__share_group_state"],
    ]


@pytest.mark.slow
def test_the_commands_are_lines_of_a_script(doctor: Callable[..., Any], guarded: GuardedBroker) -> None:
    """Each is a whole command line, and its comment says whether the ACL is there. When a right is missing, the lines
    for an export come unasked."""
    code, said = doctor("deleter", as_json=False)
    lines = [line for line in said.splitlines() if line.startswith("kafka-acls.sh ")]
    assert code == 3
    assert lines[0] == (
        f"kafka-acls.sh --bootstrap-server {guarded.bootstrap_servers} --command-config admin.properties --add "
        "--allow-principal User:deleter --operation Read --topic __share_group_state  # MISSING"
    )
    assert len(lines) == len(needed(Purpose.EXPORT))


@pytest.mark.slow
def test_what_is_not_there_is_not_known(guarded: GuardedBroker) -> None:
    """No right shows on a group that does not exist: not known, which is neither there nor missing."""
    with ShareGroupAdmin(guarded.config("admin")) as admin:
        assert granted(admin, [Acl("READ", "group", "never-there")]) == {Acl("READ", "group", "never-there"): None}


def refusals(plan: dict[str, Any]) -> set[tuple[str, str | None]]:
    return {(n["rule"], n["topic"]) for n in plan["notices"] if n["severity"] == "refusal"}


def test_missing_rights_are_refusals_by_name(
    guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path
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


def test_all_topics_leave_none_out_unsaid(guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path) -> None:
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


def test_a_deletion_asks_for_both_rights(guarded: GuardedBroker, guarded_workload: Workload) -> None:
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


_SHARE_COORDINATOR = 2
_CLUSTER_AUTHORIZATION_FAILED = 31


def _what_comes(guarded: GuardedBroker, group: str, topic: str) -> set[str]:
    """What a member that the broker knows as `member` gets and accepts: values of records, or the refusal's name."""
    consumer = ShareConsumer({**to_librdkafka(guarded.config("member")), "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    found: set[str] = set()

    def more() -> bool:
        for message in consumer.poll(0.2) or ():
            error = message.error()
            found.add(message.value().decode() if error is None else error.name())
        return bool(found)

    try:
        until(more, what="an answer")
        consumer.commit_sync()
    except KafkaException as refused:
        found.add(refused.args[0].name())
    finally:
        consumer.close()
    return found


def test_a_member_needs_read_on_group_and_topic(guarded: GuardedBroker, guarded_workload: Workload) -> None:
    """R002-46, R002-48, R002-49: to see both is not enough to join, nor to fetch; with READ on both records come, and
    their acknowledgements are taken."""
    group, topic = "of-a-member", "for-a-member"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.configure_group(group, share_auto_offset_reset="earliest")
    for kind, name in (("GROUP", group), ("TOPIC", topic)):
        guarded_workload.allow("member", "DESCRIBE", kind, name)

    assert _what_comes(guarded, group, topic) == {"GROUP_AUTHORIZATION_FAILED"}
    guarded_workload.allow("member", "READ", "GROUP", group)
    until(lambda: _what_comes(guarded, group, topic) == {"TOPIC_AUTHORIZATION_FAILED"}, what="the right to join")
    guarded_workload.allow("member", "READ", "TOPIC", topic)
    until(lambda: _what_comes(guarded, group, topic) == {"0", "1", "2"}, what="the right to fetch")
    with ShareGroupAdmin(guarded.config()) as admin:
        (offset,) = admin.describe_offsets(group)
    assert offset.lag == 0


def test_only_brokers_ask_share_coordinators(guarded: GuardedBroker) -> None:
    """R002-07, R002-44, R002-53: to find one, and the calls to it, want ClusterAction, with any rights on the group."""
    key = SharePartition(group_id=GroupId("of-a-member"), topic_id=TopicId("AAAAAAAAAAAAAAAAAAAAAQ"), partition=0)
    names = [f"{key.group_id}:{key.topic_id}:0"]
    request = FindCoordinatorRequest(key_type=_SHARE_COORDINATOR, coordinator_keys=names, min_version=6)
    with BrokerClient(guarded.config("member")) as client:
        (found,) = client.send(request).coordinators
        state = read_state(client, key, leader_epoch=0)

    assert found.error_code == state.error_code == _CLUSTER_AUTHORIZATION_FAILED
