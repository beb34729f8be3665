"""The ACLs that `acktrail doctor` suggests are enough, and none of them is too much: tried on a broker that denies what
no ACL allows."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from change.world import World
from drivers.rights import GROUP, doctor, run_by_kafkas_tool
from servers.granted_acls import grant, missing, without
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import NotAuthorized
from acktrail.export.export_run import observe
from acktrail.kafka.acl_probes import granted
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl, Purpose, needed
from acktrail.tables.delta.store import Tables

__all__ = ["doctor"]

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC: Final = "of-the-fewest-acls"
USER: Final = "fewest"


@pytest.fixture(scope="module", autouse=True)
def _state(guarded_workload: Workload) -> None:
    """Group `GROUP` accepted two records of `TOPIC`."""
    guarded_workload.create_topic(TOPIC)
    guarded_workload.produce(TOPIC, 3)
    guarded_workload.acknowledge(GROUP, TOPIC, 2)


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


def test_the_acls_of_an_export_are_enough_and_none_is_too_much(
    guarded: EmbeddedBroker, guarded_workload: Workload, doctor: Callable[..., Any], tmp_path: Path
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


def test_the_acls_of_a_reset_are_enough_and_none_is_too_much(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """With them a reset is planned, carried out and verified in the state topic; without any one it is refused."""
    config, acls = guarded.config(USER), needed(Purpose.RESET, [GROUP], [TOPIC])
    assert acls == needed(Purpose.MIGRATION, [GROUP], [TOPIC])
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


def test_a_super_user_misses_nothing(doctor: Callable[..., Any]) -> None:
    """A super user has every ACL, for all groups and topics too; with a group alone its topics are found."""
    code, checks = doctor("admin", "reset", "migration", "export", "metadata", "dead-letters")
    assert (code, {check["status"] for check in checks}) == (0, {"ok"})
    code, checks = doctor("admin", "reset", groups=[GROUP])
    assert [shlex.split(check["command"])[-2:] for check in checks] == [
        ["--group", GROUP],
        ["--topic", TOPIC],
        ["--topic", "__share_group_state"],
    ]


def test_the_commands_are_lines_of_a_script(doctor: Callable[..., Any], guarded: EmbeddedBroker) -> None:
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


def test_what_is_not_there_is_not_known(guarded: EmbeddedBroker) -> None:
    """No right shows on a group that does not exist: not known, which is neither there nor missing."""
    with ShareGroupAdmin(guarded.config("admin")) as admin:
        assert granted(admin, [Acl("READ", "group", "never-there")]) == {Acl("READ", "group", "never-there"): None}
