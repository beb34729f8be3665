"""Who reaches a listener: REST and metrics of a worker, the dashboard, metrics of the tables. Real processes, begun as
people begin them; each attack is tried at every listener."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from drivers.own_process import finished
from servers.certificates import Authority
from servers.connect_worker import ConnectWorker, connect_worker
from servers.workload import until

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.secrets import Providers
from acktrail.serving.bounded_listener import PATIENCE_S
from acktrail.serving.tokens import token_in
from acktrail.tables.delta.store import Tables
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.rest.application import rest_server
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import WorkerConfig

ACKTRAIL = (sys.executable, "-m", "acktrail.cli.main")
TOKEN = "a token of the tests, long enough"
LISTENERS = ("rest", "metrics of a worker", "dashboard", "dashboard with TLS", "metrics of tables")
CALLERS = 20
PIPELINED = 40
"""Requests whose answers no buffer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address of a running process, and a path whose answer is not small."""

    address: str
    process: int
    path: str
    trust: ssl.SSLContext | None = None

    def code(self, **headers: str) -> int:
        with closing(self.connection()) as connection:
            connection.request("GET", self.path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def connection(self) -> HTTPConnection:
        if self.trust is None:
            return HTTPConnection(self.address, timeout=60)
        return HTTPSConnection(self.address, timeout=60, context=self.trust)

    def sockets(self) -> int:
        """How many the process has."""
        found = 0
        for link in Path(f"/proc/{self.process}/fd").iterdir():
            try:
                found += os.readlink(link).startswith("socket:")
            except FileNotFoundError:  # closed meanwhile
                continue
        return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("listeners") / "tables")
    Tables(TablesConfig(uri=root)).create("topics")
    return root


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory, tables: str, token: Path) -> Iterator[dict[str, Listener]]:
    folder = tmp_path_factory.mktemp("processes")
    authority = Authority.make(folder, "authority")
    pem = authority.signed("server", address="127.0.0.1")
    trust = ssl.create_default_context(cafile=authority.file)
    with ExitStack() as stack:

        def started(process: ConnectWorker) -> ConnectWorker:
            process.start()
            stack.callback(process.kill)
            return process

        own = {"rest.listener": "127.0.0.1:0", "rest.token": TOKEN, "metrics.listener": "127.0.0.1:0"}
        worker = started(stack.enter_context(connect_worker(folder / "worker", own)))
        serve = [*ACKTRAIL, "dashboard", "serve", "--tables", tables, "--port", "0", "--token-file", str(token)]
        pages = started(ConnectWorker(folder, serve))
        secured = started(ConnectWorker(folder, [*serve, "--tls-certificate", str(pem), "--tls-key", str(pem)]))
        metrics = [*ACKTRAIL, "tables", "metrics", "--tables", tables, "--listen", "127.0.0.1:0"]
        rows = started(ConnectWorker(folder, metrics))
        large = "/static/uplot-1.6.32.min.js"
        yield {
            "rest": _listener(worker, "REST interface at", "/openapi.json"),
            "metrics of a worker": _listener(worker, "metrics at", "/metrics"),
            "dashboard": _listener(pages, "dashboard:", large),
            "dashboard with TLS": _listener(secured, "dashboard:", large, trust),
            "metrics of tables": _listener(rows, "metrics at", "/metrics"),
        }


def _listener(process: ConnectWorker, beginning: str, path: str, trust: ssl.SSLContext | None = None) -> Listener:
    def lines() -> list[str]:
        assert process.process is not None
        assert process.process.poll() is None, process.said
        return [line for line in process.said if beginning in line]

    line = until(lines, timeout_s=60)
    assert process.process is not None
    return Listener(address=line[-1].split()[-1].split("/")[2], process=process.process.pid, path=path, trust=trust)


@pytest.mark.parametrize("name", LISTENERS)
def test_a_page_of_another_name_gets_nothing(listeners: dict[str, Listener], name: str) -> None:
    """A web page that a person of this machine visits has its own name lead to 127.0.0.1 (DNS rebinding) and reads the
    listener by it: 403."""
    found = listeners[name]
    assert [found.code(), found.code(Host="localhost:1")] == [200, 200]
    assert [found.code(Host=host) for host in ("evil.example", "127.0.0.1.evil.example", "")] == [403, 403, 403]


@pytest.mark.parametrize("manner", ["sends nothing", "half a request", "reads nothing"])
def test_callers_that_give_nothing_hold_nothing(listeners: dict[str, Listener], manner: str) -> None:
    """Whoever reaches the port opens connections and sends nothing, half a request, or requests whose answers they
    never read: others are answered meanwhile, and in time no process has any of those connections."""
    before = {name: found.sockets() for name, found in listeners.items()}

    def held() -> list[str]:
        return [name for name, found in listeners.items() if found.sockets() > before[name]]

    with ExitStack() as opened:
        for name, found in listeners.items():
            begin = f"GET {found.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            sent = {"sends nothing": "", "half a request": begin, "reads nothing": f"{begin}\r\n" * PIPELINED}
            for _ in range(CALLERS):
                made = opened.enter_context(_connected(found, is_raw=manner == "sends nothing"))
                made.settimeout(0.05)
                with suppress(TimeoutError):  # the listener takes no more of it
                    made.sendall(sent[manner].encode())
            assert (found.code(), name in held()) == (200, True), (name, before, found.sockets())
        until(lambda: not held(), timeout_s=6 * PATIENCE_S, what="no connection of theirs")


def _connected(found: Listener, *, is_raw: bool) -> socket.socket:
    host, _, port = found.address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.settimeout(30)
    made.connect((host, int(port)))
    return made if is_raw or found.trust is None else found.trust.wrap_socket(made, server_hostname=host)


def test_a_token_does_not_travel_in_plain_text(tables: str, token: Path) -> None:
    """Whoever is on the way reads token and cookie of a dashboard that others reach by plain HTTP: it does not start
    without TLS, its own or that of a proxy, and says which options there are."""
    serve = [*ACKTRAIL, "dashboard", "serve", "--tables", tables, "--port", "0", "--host", "0.0.0.0"]
    ended = finished(*serve, "--token-file", token, timeout=60)
    assert (ended.returncode, "without TLS" in ended.stderr, "--behind-tls-proxy" in ended.stderr) == (3, True, True)
    ended = finished(*serve, "--behind-tls-proxy", timeout=60)
    assert (ended.returncode, "without a token" in ended.stderr) == (3, True)
    behind = ConnectWorker(Path(), [*serve, "--token-file", str(token), "--behind-tls-proxy"])
    behind.start()
    try:
        found = _listener(behind, "dashboard:", "/")
        assert found.code() == 200
        with closing(found.connection()) as connection:  # the proxy says nothing of TLS
            connection.request("POST", "/login", urlencode({"token": TOKEN}))
            cookie = connection.getresponse().headers["Set-Cookie"]
        assert "Secure" in cookie.split("; ")
    finally:
        behind.kill()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_token_that_others_read_is_none(tables: str, tmp_path: Path, mode: int) -> None:
    """Another account of the machine reads the file of the token, or writes its own into it: the dashboard does not
    start with it, and says what to do."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    ended = finished(
        *ACKTRAIL, "dashboard", "serve", "--tables", tables, "--port", "0", "--token-file", file, timeout=60
    )
    assert (ended.returncode, f"chmod 600 {file}" in ended.stderr.replace("\n", " ")) == (3, True), ended.stderr


@pytest.mark.parametrize("read", ["token", "reference"])
def test_a_token_of_another_user_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """Another account owns the file, of any mode, and so knows the token: it is refused; one of root's is not."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    asked = {
        "token": lambda: token_in(file, "the token"),
        "reference": lambda: Providers(is_for_owner=True).resolve(f"${{file:{file}}}"),
    }[read]
    assert asked()
    owner = file.stat().st_uid
    if owner == 0:
        os.chown(file, 65_534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigurationError, match="another user owns"):
        asked()


@pytest.mark.parametrize(("user", "password"), [("a", "a"), ("", ""), ("ann", "fifteen letters"), ("", TOKEN)])
def test_a_password_that_can_be_guessed_is_none(user: str, password: str) -> None:
    """Anybody who reaches the port guesses a short password or sends an empty one: no interface starts with it."""
    own = {"rest.listener": "127.0.0.1:0", "rest.basic.user": user, "rest.basic.password": password}
    with pytest.raises(ConfigurationError, match=r"rest\.basic\.(password has fewer than 16|user is empty)"):
        rest_server(Worker(ConfigStore()), WorkerConfig.of(own))


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("dashboard", "serve", "--tables", "TABLES", "--port", "0"), "ACKTRAIL_DASHBOARD_TOKEN"),
        (("run", "spark", "serve"), "SPARK_CONNECT_AUTHENTICATE_TOKEN"),
    ],
)
def test_a_token_that_can_be_guessed_is_none(tables: str, command: tuple[str, ...], variable: str) -> None:
    """Whoever reaches the port guesses a short token: no server starts with one from the environment."""
    words = [tables if word == "TABLES" else word for word in command]
    ended = finished(*ACKTRAIL, *words, env={**os.environ, variable: "fifteen letters"}, timeout=120)
    assert (ended.returncode, "fewer than 16 characters" in ended.stderr.replace("\n", " ")) == (3, True), ended.stderr
