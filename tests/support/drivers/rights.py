"""What a user without rights is told by `doctor`; ACLs that are granted and revoked for a
time, or by Kafka's own tool."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
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
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.granted_acls import granted
from acktrail.model.acls import ALL, Acl

GROUP: Final = "with-the-fewest-acls"

SEEN: Final = (Acl("DESCRIBE", "group", ALL), Acl("DESCRIBE_CONFIGS", "group", ALL))
TOPICS: Final = Acl("DESCRIBE", "topic", ALL)


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
