"""``acktrail connect health``: what it asks of a running worker, and what it concludes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from connect.worker.rest.conftest import TOKEN, Rest
from samples.memory_plugins import MemoryWorld
from servers.certificates import Authority
from servers.workload import until
from typer.testing import CliRunner

from acktrail.errors import ConfigurationError, InputError, RetryableError
from acktrail_connect.worker.connect_command import app
from acktrail_connect.worker.worker_health import worker_states

BASE = {"connector.class": "MemorySource", "sink.class": "MemorySink", "task.restarts.max": "0"}


@pytest.fixture
def worker_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the file of a worker that only its owner may read, with these keys."""

    def written(rest: Rest | None = None, **keys: str) -> Path:
        at = {} if rest is None or rest.server.url.startswith("unix:") else {"rest.listener": rest.server.address}
        texts = at | {name.replace("__", "."): value for name, value in keys.items()}
        file = tmp_path / "worker.toml"
        file.touch(mode=0o600)
        file.write_text("".join(f'{name} = "{value}"\n' for name, value in texts.items()))
        return file

    return written


def test_states_of_connectors_and_tasks_are_listed(start: Any, worker_file: Any, world: MemoryWorld) -> None:
    """Of a running connector and of a paused one; the command prints a line for each."""
    rest = start()
    for name, state in (("runs", "RUNNING"), ("waits", "PAUSED")):
        assert rest("POST", "/connectors", {"name": name, "config": BASE, "initial_state": state}).code == 201
    file = worker_file(rest, rest__token=TOKEN)
    until(lambda: worker_states(file)["runs"] == ["RUNNING", "RUNNING"], what="a running task")
    assert worker_states(file)["waits"][0] == "PAUSED"
    done = CliRunner().invoke(app, ["health", str(file)])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "runs: RUNNING, RUNNING")


def test_failed_connector_is_not_healthy(start: Any, worker_file: Any, world: MemoryWorld) -> None:
    """Its name and its reason are in one line."""
    rest = start()
    file = worker_file(rest, rest__token=TOKEN)
    assert worker_states(file) == {}
    world.start_error = lambda _config: InputError("this cluster\nis closed")
    rest("POST", "/connectors", {"name": "fails", "config": BASE})

    def fails() -> bool:
        try:
            return not worker_states(file)
        except RetryableError as error:
            return "is closed" in error.message and "\n" not in error.with_hint

    until(fails, what="a failed connector")


@pytest.mark.parametrize("keys", [{"rest__token": "another token of the tests"}, {"rest__basic__user": "ann"}])
def test_refused_caller_is_a_wrong_configuration(start: Any, worker_file: Any, keys: dict[str, str]) -> None:
    more = {"rest__basic__password": "pass-long-enough-to-be-one"} if "rest__basic__user" in keys else {}
    with pytest.raises(ConfigurationError, match="refused the health check with 401"):
        worker_states(worker_file(start(), **keys, **more))


def test_login_and_socket_are_those_of_the_worker(start: Any, worker_file: Any, tmp_path: Path) -> None:
    """By basic authentication, and at a Unix socket."""
    login = {"rest__basic__user": "ann", "rest__basic__password": "pass-long-enough-to-be-one"}
    assert worker_states(worker_file(start(**login), **login)) == {}
    place = {"rest__socket": str(tmp_path / "rest.sock"), "rest__token": TOKEN}
    assert worker_states(worker_file(start(**place), **place)) == {}


def test_only_the_certificate_of_the_worker_is_trusted(start: Any, worker_file: Any, tmp_path: Path) -> None:
    """Its name does not matter; another certificate of the same authority is refused."""
    authority = Authority.make(tmp_path, "authority")
    own, other = (str(authority.signed(name, address="elsewhere.example")) for name in ("own", "other"))
    keys = {"rest__tls__certificate": own, "rest__tls__key": own}
    rest = start(**keys)
    assert worker_states(worker_file(rest, rest__token=TOKEN, **keys)) == {}
    with pytest.raises(RetryableError, match="CERTIFICATE_VERIFY_FAILED"):
        worker_states(worker_file(rest, rest__token=TOKEN, rest__tls__certificate=other, rest__tls__key=other))


def test_a_worker_that_does_not_answer_is_named_by_its_address(worker_file: Any) -> None:
    """Nothing listens; port 0; no REST interface at all."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RetryableError, match=f"no server answers at {address}: Connection refused"):
            worker_states(worker_file(rest__listener=address, rest__token=TOKEN))
    with pytest.raises(ConfigurationError, match="port 0"):
        worker_states(worker_file(rest__listener="127.0.0.1:0", rest__token=TOKEN))
    with pytest.raises(ConfigurationError, match="no REST interface"):
        worker_states(worker_file(rest__listener=""))
