"""Wrong addresses, names, folders and clusters at the command line: one line, the right exit code, nothing written."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from drivers.command_line import Done, run

from acktrail.embedded import EmbeddedBroker

pytestmark = pytest.mark.broker

Run = Callable[..., Done]


@pytest.fixture(name="acktrail")
def _acktrail(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(run, capsys)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers, as one that expects TLS does to plain text."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_nobody_there(acktrail: Run, tmp_path: Path) -> None:
    """A wrong address is named, with exit code 4, and no table is made."""
    tables = tmp_path / "tables"
    for command in (["groups", "list"], ["run", "export", "--tables", str(tables)]):
        line = acktrail(*command, "--bootstrap-server", "127.0.0.1:1").complaint(4)
        assert "127.0.0.1:1" in line
    assert not tables.exists()


def test_a_port_that_never_answers(acktrail: Run, silent_port: int) -> None:
    """A listener that speaks something else ends in a line that names the security protocol, within the patience."""
    line = acktrail("groups", "list", "--bootstrap-server", f"127.0.0.1:{silent_port}").complaint(4)

    assert "security.protocol" in line


@pytest.mark.parametrize("address", [None, ""])
def test_no_broker_named(acktrail: Run, monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Without an address the line says how to give one; an empty one is none."""
    monkeypatch.delenv("ACKTRAIL_BOOTSTRAP_SERVERS", raising=False)
    if address is not None:
        monkeypatch.setenv("ACKTRAIL_BOOTSTRAP_SERVERS", address)
    line = acktrail("groups", "list").complaint(3)

    assert "--bootstrap-server" in line


def test_a_new_cluster_has_no_share_group_and_everything_says_so(acktrail: Run, tmp_path: Path) -> None:
    """Where no share consumer ever came there is no state topic: a look that found nothing is a look. The README's
    order ends well, each command says what was seen and when, and no other run's answer stands in its place."""
    tables = ("--tables", tmp_path / "t")
    with EmbeddedBroker() as broker:
        names = ("--bootstrap-server", broker.bootstrap_servers, *tables)
        export = acktrail("run", "export", *names)
        done = [
            export,
            *(
                acktrail(*name.split(), *tables)
                for name in ("run reconcile", "run validate", "dashboard report", "status")
            ),
        ]
        assert [each.code for each in done] == [0] * 5, [each.stderr for each in done]
        at = export.stdout.splitlines()[-1].removeprefix("no share group on this cluster at ")
        for each in done:
            said = each.stdout.replace(f"{at[:10]} {at[11:19]} UTC", at)
            assert f"no share group on this cluster at {at}" in said.lower().replace(at.lower(), at), each.stdout
        assert acktrail("run", "reconcile", *tables).code == acktrail("status", *tables).code == 0
        assert json.loads(acktrail("status", "--json", *tables).stdout)["act_on"] == []


def test_unknown_group(acktrail: Run, broker: EmbeddedBroker) -> None:
    """A group that is not there is named, with exit code 2."""
    line = acktrail("groups", "describe", "no-such-group", "--bootstrap-server", broker.bootstrap_servers).complaint(2)

    assert "no-such-group" in line


def test_tables_that_cannot_be_written(acktrail: Run, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A root below a file is refused with exit code 3, and the root is named."""
    file = tmp_path / "file"
    file.write_text("not a folder")
    arguments = ("--bootstrap-server", broker.bootstrap_servers, "--tables", file / "tables")

    assert str(file) in acktrail("run", "export", *arguments).complaint(3)


def test_a_client_configuration_is_not_shown(acktrail: Run, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A line of the client configuration that cannot be read is named by number; its text, a secret maybe, is not."""
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=me\nhunter2-the-password\n")
    arguments = ("--bootstrap-server", broker.bootstrap_servers, "--client-config", file)

    line = acktrail("groups", "list", *arguments).complaint(3)

    assert "line 2" in line
    assert "hunter2" not in line
