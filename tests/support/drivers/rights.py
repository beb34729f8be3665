"""What a user without rights is told, by `doctor` and by a source's status; ACLs that are granted and revoked for a
time, or by Kafka's own tool."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.command_line import run as command
from drivers.own_process import finished
from servers.guarded_broker import GuardedBroker
from servers.real_broker import kafka_tool
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.connect.runtime.connector_run import ConfigStore
from acktrail.connect.runtime.task_thread import RunState
from acktrail.connect.runtime.worker import Worker
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.source_connectors import granted
from acktrail.model.acls import ALL, Acl

GROUP: Final = "with-the-fewest-acls"

_USER: Final = "unwelcome"
SEEN: Final = (Acl("DESCRIBE", "group", ALL), Acl("DESCRIBE_CONFIGS", "group", ALL))
TOPICS: Final = Acl("DESCRIBE", "topic", ALL)
_LOGS: Final = tuple(Acl("READ", "topic", topic) for topic in ("__share_group_state", "__consumer_offsets"))
_ALL_RIGHTS: Final = (*SEEN, TOPICS, *_LOGS)
OFTEN: Final = {"interval.ms": "1000"}


@pytest.fixture
def doctor(guarded: GuardedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command as a user: its exit code and what it says about ACLs; with `as_json` False its output."""

    def run(
        user: str, *purposes: str, groups: Sequence[str] = (), topics: Sequence[str] = (), as_json: bool = True
    ) -> tuple[int, Any]:
        client = tmp_path / f"{user}.properties"
        client.write_text("".join(f"{key}={value}\n" for key, value in guarded.client_properties(user).items()))
        place = ("--bootstrap-server", guarded.bootstrap_servers, "--client-config", client)
        asked = [*(("--acls", each) for each in purposes), *(("--group", each) for each in groups)]
        asked += [("--topic", each) for each in topics]
        words = [*place, "--tables", tmp_path / "nothing-yet", *(word for pair in asked for word in pair)]
        done = command(capsys, "doctor", *words, *["--json"] * as_json)
        return done.code, [check for check in done.rows if check["command"]] if as_json else done.stdout

    return run


def run_by_kafkas_tool(broker: GuardedBroker, folder: Path, commands: Sequence[str]) -> None:
    """Run each command line as it stands, with the class that the script starts."""
    admin = folder / "admin.properties"
    admin.write_text("".join(f"{key}={value}\n" for key, value in broker.client_properties("admin").items()))
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    admin.write_text(f'{admin.read_text()}sasl.jaas.config={jaas} username="admin" password="admin-secret";\n')

    def run(line: str) -> subprocess.CompletedProcess[str]:
        script, *arguments = shlex.split(line)
        assert script == "kafka-acls.sh"
        tool = kafka_tool("org.apache.kafka.tools.AclCommand", *arguments)
        return finished(*tool, cwd=folder)

    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(run, commands):
            assert (done.returncode, "Adding ACLs" in done.stdout) == (0, True), done.stdout + done.stderr


def says_which_rights(
    guarded: GuardedBroker,
    guarded_workload: Workload,
    tmp_path: Path,
    name: str,
    acls: Sequence[Acl],
    own: Mapping[str, str],
) -> None:
    """A source without its rights names those that are missing and no other one. Once they are granted there is no
    word: a source that runs on sees them with its next look, one that failed is started again."""
    worker = Worker(ConfigStore())

    def told() -> tuple[set[RunState], str]:
        statuses = [worker.status(name), *(task.status for task in worker.tasks(name))]
        return {status.state for status in statuses}, "".join(status.trace for status in statuses)

    kafka = guarded.config(_USER)
    reached = {f"kafka.{key}": str(value) for key, value in kafka.properties.items()}
    reached |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "sink.tables": str(tmp_path / "tables")}
    try:
        worker.create(name, {"connector.class": name, **reached, **own})
        until(lambda: told()[1], what="a word about the rights")
        _, said = told()
        assert {text for text in map(str, _ALL_RIGHTS) if text in said} == set(map(str, acls)), said
        for acl in acls:
            guarded_workload.allow(_USER, acl.operation, acl.kind.upper(), acl.name)

        def is_well() -> bool:
            if RunState.FAILED in told()[0]:
                worker.restart(name, include_tasks=True, only_failed=True)
            return told() == ({RunState.RUNNING}, "") and bool(worker.tasks(name))

        until(is_well, what="no word any more")
    finally:
        worker.stop()
        for acl in acls:
            guarded_workload.revoke(_USER, acl.operation, acl.kind.upper(), acl.name)


def grant(workload: Workload, user: str, acls: Sequence[Acl]) -> None:
    for acl in acls:
        workload.allow(user, acl.operation, acl.kind.upper(), acl.name)


@contextmanager
def without(workload: Workload, user: str, config: KafkaConfig, acl: Acl, others: Sequence[Acl]) -> Iterator[None]:
    """A time in which `acl` is revoked, and the broker knows it."""
    workload.revoke(user, acl.operation, acl.kind.upper(), acl.name)
    with ShareGroupAdmin(config) as admin:
        until(lambda: missing(admin, others) == {acl}, what=f"that {acl} alone is missing")
        yield
        grant(workload, user, [acl])
        until(lambda: not missing(admin, others), what=f"{acl} again")


def missing(admin: ShareGroupAdmin, acls: Sequence[Acl]) -> set[Acl]:
    return {acl for acl, is_there in granted(admin, acls).items() if not is_there}
