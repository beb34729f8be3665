"""Who may call, and what is refused at the door."""

from __future__ import annotations

import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from acktrail.connect.rest.application import rest_server
from acktrail.connect.runtime.connector_run import ConfigStore
from acktrail.connect.runtime.standalone import WorkerConfig
from acktrail.connect.runtime.worker import Worker
from acktrail.errors import ConfigurationError


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_token_or_a_password_opens(start: Any) -> None:
    """Either of both that are configured; everything else is 401 with both challenges and Connect's shape."""
    rest = start(rest__token="t0ken", rest__basic__user="ann", rest__basic__password="pa:ss")
    for path in ("/", "/openapi.json", "/health"):
        assert (rest("GET", path).code, rest("GET", path, Authorization="bearer t0ken").code) == (401, 200)
    assert rest("GET", "/connectors", Authorization="Bearer t0ken").code == 200
    assert rest("GET", "/connectors", Authorization=basic("ann", "pa:ss")).code == 200
    for wrong in (
        "",
        "Bearer",
        "Bearer x",
        basic("ann", "pa"),
        basic("", "pa:ss"),
        "Basic !!!",
        "Digest x",
        "Basic /w==",
    ):
        refused = rest("GET", "/connectors", **({"Authorization": wrong} if wrong else {}))
        assert (refused.code, refused.body["error_code"]) == (401, 401), wrong
        assert {"Bearer", "Basic"} == {each.split()[0] for each in refused.headers["www-authenticate"].split("; ")}


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("[::1]:8083", 200),
        ("other.example", 403),
        ("127.0.0.1.other.example", 403),
        ("localhost.", 403),
        ("", 403),
        ("allowed.example:80", 200),
    ],
)
def test_foreign_host_names_are_refused(start: Any, host: str, code: int) -> None:
    """A page whose name leads to this machine reads nothing (DNS rebinding)."""
    rest = start(rest__allowed__hosts="allowed.example")
    assert rest("GET", "/connectors", Host=host).code == code


def test_pages_of_other_servers_change_nothing(rest: Any) -> None:
    """A request with another Origin is refused, no answer allows one, and a body that is not JSON is refused."""
    assert rest("POST", "/connectors/a/restart", Origin="http://evil.example").code == 403
    assert rest("POST", "/connectors/a/restart", Origin=f"http://{rest.server.address}").code == 404
    answer = rest("GET", "/connectors", Origin="http://evil.example")
    assert "access-control-allow-origin" not in answer.headers
    assert rest("POST", "/connectors", b'{"name":"a","config":{}}', Content_Type="text/plain").code == 400


def test_large_bodies_are_refused(rest: Any) -> None:
    """Nobody fills the memory."""
    assert rest("POST", "/connectors", b"[" + b" " * (5 << 20)).code == 413


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"rest.token": "t"},
        {"rest.basic.user": "u", "rest.basic.password": "p"},
    ],
)
def test_an_open_listener_is_refused(texts: dict[str, str]) -> None:
    """Beyond loopback without TLS and authentication nothing starts, unless it is said."""
    worker = Worker(ConfigStore())
    with pytest.raises(ConfigurationError, match="without TLS and authentication"):
        rest_server(worker, WorkerConfig.of({"rest.listener": "0.0.0.0:0", **texts}))
    with rest_server(worker, WorkerConfig.of({"rest.listener": "0.0.0.0:0", "rest.insecure": "true", **texts})):
        pass


@pytest.mark.parametrize("listener", ["8083", "localhost", "localhost:x", "localhost:65536", ":1"])
def test_an_address_that_is_none(listener: str) -> None:
    """Is a configuration error."""
    with pytest.raises(ConfigurationError):
        rest_server(Worker(ConfigStore()), WorkerConfig.of({"rest.listener": listener}))


def test_a_taken_address(start: Any) -> None:
    """Is a configuration error that names it."""
    taken = start().server.address
    with pytest.raises(ConfigurationError, match=taken):
        rest_server(Worker(ConfigStore()), WorkerConfig.of({"rest.listener": taken}))


def test_tls(start: Any, tmp_path: Path) -> None:
    """A certificate and its key: clients that trust it are answered; a wrong key is a configuration error."""
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    subprocess.run([*made, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    rest = start(rest__tls__certificate=str(certificate), rest__tls__key=str(key))
    import http.client

    trust = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(rest.server.address, context=trust, timeout=30)
    connection.request("GET", "/connectors")
    assert connection.getresponse().status == 200
    connection.close()
    key.write_text("no key")
    with pytest.raises(ConfigurationError, match="certificate and key"):
        start(rest__tls__certificate=str(certificate), rest__tls__key=str(key))
