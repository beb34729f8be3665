"""Who may call, what is refused at the door, and who gives way; and no answer, no log and no trace has a secret."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import ssl
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from connect.worker.rest.conftest import TOKEN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.memory_source import FakeClock
from servers.certificates import Authority
from servers.workload import until

from acktrail.errors import ConfigurationError
from acktrail.serving.bounded_listener import PATIENCE_S, BoundedListener
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.rest.application import rest_server
from acktrail_connect.worker.standalone import log_to_stderr
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import WorkerConfig

SECRET_KEYS = (
    "memory.sasl.password",
    "memory.hush",
    "memory.secret.number",
    "memory.client.api.token",
    "sink.memory.token",
)
BASE = {
    "connector.class": "MemorySource",
    "sink.class": "MemorySink",
    "flush.interval.ms": "10",
    "task.restarts.max": "0",
}
QUOTES = (str, str.upper, str.lower, str.title, repr, json.dumps, quote, quote_plus, lambda text: quote(text, safe=""))
ANY_KEYS = (
    *("connector.class", "sink.class", "transforms", "transforms.a.type", "tasks.max", "flush.interval.ms", "name"),
    *("errors.tolerance", "errors.deadletterqueue.table", "memory.word", "memory.hush", "memory.secret.number"),
    *("memory.client.any", "sink.memory.token", "no.such.key"),
)
LETTERS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=5, max_size=16)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_token_or_a_password_opens(start: Any) -> None:
    """Either of both that are configured; everything else is 401 with both challenges and Connect's shape."""
    rest = start(rest__token=TOKEN, rest__basic__user="ann", rest__basic__password="pa:ss-long-enough")
    for path in ("/", "/openapi.json", "/health"):
        codes = [rest("GET", path, Authorization=each).code for each in ("", f"bearer {TOKEN}")]
        assert codes == [401, 200]
    assert rest("GET", "/connectors", Authorization=f"Bearer {TOKEN}").code == 200
    assert rest("GET", "/connectors", Authorization=basic("ann", "pa:ss-long-enough")).code == 200
    strange = ("", "Bearer", "Bearer x", "Basic !!!", "Digest x", "Basic /w==")
    for wrong in (*strange, basic("ann", "pa"), basic("", "pa:ss-long-enough")):
        refused = rest("GET", "/connectors", Authorization=wrong)
        assert (refused.code, refused.body["error_code"]) == (401, 401), wrong
        assert {"Bearer", "Basic"} == {each.split()[0] for each in refused.headers.get_all("www-authenticate")}


def test_foreign_host_names_are_refused(start: Any) -> None:
    """A page whose name leads to this machine reads nothing (DNS rebinding)."""
    rest = start(rest__allowed__hosts="allowed.example")
    for host in ("localhost", "LOCALHOST:1234", "[::1]:8083", "allowed.example:80"):
        assert rest("GET", "/connectors", Host=host).code == 200, host
    for host in ("other.example", "127.0.0.1.other.example", "localhost.", ""):
        assert rest("GET", "/connectors", Host=host).code == 403, host


def test_pages_of_other_servers_change_nothing(rest: Any) -> None:
    """A request with another Origin is refused, no answer allows one, and a body that is not JSON is 415."""
    assert rest("POST", "/connectors/a/restart", Origin="http://evil.example").code == 403
    assert rest("POST", "/connectors/a/restart", Origin=f"http://{rest.server.address}").code == 404
    answer = rest("GET", "/connectors", Origin="http://evil.example")
    assert "access-control-allow-origin" not in answer.headers
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "",
        "application/jsonx",
    ):
        refused = rest("POST", "/connectors", b'{"name":"a","config":{}}', Content_Type=kind)
        assert (refused.code, refused.body) == (415, {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"})
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert rest("PUT", "/connectors/a/config", BASE, Content_Type=kind).code in {200, 201}, kind


def test_large_bodies_are_refused(rest: Any) -> None:
    """Nobody fills the memory."""
    assert rest("POST", "/connectors", b"[" + b" " * (5 << 20)).code == 413


@pytest.mark.parametrize("texts", [{"rest.token": TOKEN}, {"rest.basic.user": "u", "rest.basic.password": TOKEN}])
def test_an_open_listener_is_refused(texts: dict[str, str]) -> None:
    """Beyond loopback without TLS nothing starts, unless a proxy has it."""
    worker, own = Worker(ConfigStore()), {"rest.listener": "0.0.0.0:0", **texts}
    with pytest.raises(ConfigurationError, match="without TLS") as caught:
        rest_server(worker, WorkerConfig.of(own))
    assert "rest.behind.tls.proxy = true" in str(caught.value.hint)
    with rest_server(worker, WorkerConfig.of(own | {"rest.behind.tls.proxy": "true"})):
        pass


def test_a_key_of_the_worker_is_none_of_its_connectors() -> None:
    """Under [connector] nothing would read it: the error names it, and where it belongs."""
    with pytest.raises(ConfigurationError, match=r"lease\.ttl\.ms is a key of the worker") as caught:
        WorkerConfig.of({"connector.lease.ttl.ms": "5000", "connector.linger.ms": "1"})
    assert caught.value.hint == "move it above [connector]"


def test_an_address_that_is_none_or_taken(start: Any) -> None:
    """Is a configuration error that names it."""
    for listener in ("8083", "localhost", "localhost:x", "localhost:65536", ":1", start().server.address):
        with pytest.raises(ConfigurationError, match=listener):
            rest_server(Worker(ConfigStore()), WorkerConfig.of({"rest.listener": listener, "rest.token": TOKEN}))


def test_tls(start: Any, tmp_path: Path) -> None:
    """A certificate and its key: clients that trust it are answered; a wrong key is a configuration error."""
    authority = Authority.make(tmp_path, "authority")
    server, key = authority.signed("server", address="127.0.0.1"), tmp_path / "k.pem"
    key.write_text("no key")
    rest = start(rest__tls__certificate=str(server), rest__tls__key=str(server))
    trust = ssl.create_default_context(cafile=authority.file)
    asked = urllib.request.Request(f"{rest.server.url}/connectors", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=30, context=trust) as answer:
        assert answer.status == 200
    with pytest.raises(ConfigurationError, match="certificate and key"):
        start(rest__tls__certificate=str(server), rest__tls__key=str(key))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    secret=LETTERS.map(lambda text: f"s3{text}"),
    key=st.sampled_from(ANY_KEYS),
    provider=st.sampled_from(["itself", "env", "whole file", "key of a file"]),
    hidden=st.sampled_from(SECRET_KEYS),
    around=st.sampled_from(["{}", "a {}:9092", "{},{}"]),
    trouble=st.sampled_from([None, "source", "task"]),
    form=st.sampled_from(QUOTES),
)
def test_no_secret_is_ever_shown(
    rest: Any,
    world: Any,
    caplog: Any,
    tmp_path: Path,
    *,
    secret: str,
    key: str,
    provider: str,
    hidden: str,
    around: str,
    trouble: str | None,
    form: Any,
) -> None:
    """Whichever key has it, itself or by a reference, whatever provider it comes from, whatever stands around it, and
    however an error quotes it: no answer, state, trace or log has it, in no case."""
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    whole, lines = tmp_path / "whole", tmp_path / "lines"
    whole.write_text(secret)
    lines.write_text(f"entry={secret}\n")
    os.environ["REST_TEST_SECRET"] = secret
    reference = {"env": "${env:REST_TEST_SECRET}", "whole file": f"${{file:{whole}}}"}.get(
        provider, f"${{file:{lines}:entry}}"
    )
    text = around.format(*[reference] * around.count("{}"))
    if provider == "itself":  # as a person writes it, where a key's name or type says that it is secret
        secret += "'\"\\7"
        key, text = hidden, secret

    def quoting(config: Any) -> Exception:
        return ValueError(f"unusable: {form(secret)} {form(around.format(*[secret] * around.count('{}')))} {config!r}")

    world.start_error = quoting if trouble == "source" else None
    world.poll_error = quoting if trouble == "task" else None
    config = {**BASE, "errors.tolerance": "all", key: text}
    answers = [
        rest("PUT", "/connector-plugins/MemorySource/config/validate", {"name": "s", **config}),
        rest("PUT", "/connectors/s/config", config),
    ]
    assert answers[1].code in {201, 400}, answers[1].text
    if trouble and answers[1].code == 201:
        until(lambda: "FAILED" in rest("GET", "/connectors/s/status").text)
    paths = ("", "/config", "/status", "/tasks", "/offsets", "/topics", "/tasks/0/status")
    answers += [rest("GET", f"/connectors/s{path}") for path in paths]
    answers += [rest("GET", "/connectors?expand=info&expand=status"), rest("DELETE", "/connectors/s")]
    seen = "\n".join([*(answer.text for answer in answers), caplog.text])
    for each in (secret, secret.upper(), secret.lower()):
        for wrong in (each, repr(each)[1:-1], json.dumps(each)[1:-1], quote(each), quote_plus(each)):
            assert wrong.lower() not in seen.lower(), (key, wrong, seen)


def test_files_and_variables_lie_where_they_may(start: Any, tmp_path: Path) -> None:
    """What a reference names, also by a link: 400 elsewhere, with the key's name."""
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.write_text("none-such\n")
    (allowed / "link").symlink_to(outside)
    rest = start(config__providers__allowed__paths=str(allowed), config__providers__allowed__variables="REST_*,OTHER")
    config = {
        "connector.class": "ShareGroupStateSource",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "sink.tables": str(tmp_path / "tables"),
    }
    files = (outside, allowed / "link", allowed / "none", tmp_path)
    for text in ("${env:PATH}", *(f"${{file:{file}}}" for file in files)):
        refused = rest("PUT", "/connectors/s/config", {**config, "kafka.sasl.password": text})
        assert refused.code == 400, refused.text
        assert "kafka.sasl.password" in refused.body["message"]
        assert "none-such" not in refused.text


def test_connectors_do_not_reach_what_is_the_workers(start: Any, world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Its own file, what that refers to, its private key, the connectors that it keeps and the environment of its
    process: 400 by any name. Another key of a file that it shares, and what is given to all connectors, are theirs."""
    monkeypatch.setenv("REST_TOKEN", "worker-token, long enough")
    monkeypatch.setenv("REST_SHARED", "shared-word")
    store, shared, whole, key = (tmp_path / name for name in ("store", "shared", "whole", "key.pem"))
    store.mkdir()
    shared.write_text("user=worker-user\nword=connector-word\n")
    for file, text in ((whole, "worker-password"), (key, "worker-key"), (store / "other.json", "{}")):
        file.write_text(text)
    whole.chmod(0o600)  # as the file of a token must be
    (tmp_path / "link").symlink_to(whole)
    (tmp_path / "hard").hardlink_to(whole)
    (tmp_path / "worker.toml").write_text(
        "\n".join(
            [
                'rest.token = "${env:REST_TOKEN}"',
                f'rest.basic.user = "${{file:{shared}:user}}"',
                'rest.basic.password = "${file:whole}"',
                f'rest.tls.certificate = "{key}"',
                f'rest.tls.key = "{key}"',
                f'config.storage.dir = "{store}"',
                'config.providers.allowed.paths = "/"',
                'config.providers.allowed.variables = "REST_*"',
                '[connector]\nmemory.word = "${env:REST_SHARED}"',
            ]
        )
    )
    config = WorkerConfig.read(tmp_path / "worker.toml")
    rest = start(defaults=config.defaults, providers=config.providers)
    files = (shared, whole, "whole", key, store / "other.json", *(tmp_path / name for name in ("link", "hard")))
    files = (*files, f"{shared}:user", f"{whole}:any", tmp_path / "worker.toml", "/proc/self/environ")
    for text in ("${env:REST_TOKEN}", *(f"${{file:{file}}}" for file in files)):
        refused = rest("PUT", "/connectors/s/config", {**BASE, "memory.client.password": f"x{text}"})
        assert (refused.code, "the worker's own" in refused.text, "worker-" in refused.text) == (400, True, False), text
    refused = rest("PUT", "/connectors/s/config", {**BASE, "memory.hush": "${env:REST_SHARED}"})
    assert (refused.code, "a secret of an operator's file" in refused.text) == (400, True)
    shares = {**BASE, "memory.client.password": f"${{file:{shared}:word}}"}
    assert rest("PUT", "/connectors/s/config", shares).code == 201
    source = rest.worker.runs()["s"].plan.source.config
    assert [source[name] for name in ("memory.word", "memory.client.password")] == ["shared-word", "connector-word"]


def test_hidden_is_no_value_of_a_new_key(rest: Any) -> None:
    """Where the worker has no value in its place [hidden] is refused: in a new connector, in a key that is new to one,
    by POST, PUT, PATCH and in a validation."""
    new = {**BASE, "memory.hush": "[hidden]"}
    assert rest("PUT", "/connectors/s/config", BASE).code == 201
    told = [
        rest("POST", "/connectors", {"name": "t", "config": new}),
        rest("PUT", "/connectors/t/config", new),
        rest("PUT", "/connectors/s/config", new),
        rest("PATCH", "/connectors/s/config", {"memory.hush": "[hidden]"}),
    ]
    assert [(each.code, "memory.hush: [hidden] stands for" in each.text) for each in told] == [(400, True)] * 4
    assert rest("GET", "/connectors").body == ["s"]
    found = rest("PUT", "/connector-plugins/MemorySource/config/validate", {**new, "name": "t"}).body
    assert found["error_count"] == 1, found


def test_hidden_keeps_the_value(rest: Any) -> None:
    """What is shown can be sent back: the worker keeps what it has. In PUT and PATCH."""
    rest("PUT", "/connectors/s/config", {**BASE, "memory.sasl.password": "old-secret", "memory.hush": "other"})
    shown = rest("GET", "/connectors/s/config").body
    assert (shown["memory.sasl.password"], shown["memory.hush"]) == ("[hidden]", "[hidden]")
    assert rest("PUT", "/connectors/s/config", {**shown, "memory.word": "x"}).code == 200
    assert rest("PATCH", "/connectors/s/config", {"memory.hush": "[hidden]", "memory.word": None}).code == 200
    source = rest.worker.runs()["s"].plan.source
    assert (source.config["memory.sasl.password"], source.config["memory.hush"].value) == ("old-secret", "other")


def test_references_are_shown_and_their_values_are_not(rest: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Of passwords, by their type or their name, and in a traceback of the plug-in."""
    monkeypatch.setenv("REST_TEST_WORD", "from-the-environment")
    file = tmp_path / "secret"
    file.write_text("from-the-file\n")
    config = {**BASE, "memory.sasl.password": "${env:REST_TEST_WORD}", "memory.hush": f"${{file:{file}}}"}
    made = rest("PUT", "/connectors/s/config", config)
    assert made.body["config"] == {**config, "name": "s"}
    validated = rest("PUT", "/connector-plugins/MemorySource/config/validate", {**config, "name": "s"})
    assert validated.body["error_count"] == 0
    values = {each["value"]["name"]: each["value"]["value"] for each in validated.body["configs"]}
    assert all(values[name] == config[name] for name in ("memory.sasl.password", "memory.hush"))
    source = rest.worker.runs()["s"].plan.source.config
    assert source["memory.sasl.password"] == "from-the-environment"
    assert source["memory.hush"].value == "from-the-file"
    missing = rest("PUT", "/connectors/t/config", {**BASE, "memory.hush": "${env:REST_TEST_MISSING}"})
    assert missing.code == 400
    assert "REST_TEST_MISSING" in missing.body["message"]


@pytest.mark.parametrize("text", ["${p4ss}", "${vault:p4ssword}", "x${env:HOME}"])
def test_what_only_looks_like_a_reference_is_hidden(rest: Any, text: str) -> None:
    """A password may begin with a dollar and a brace."""
    answer = rest("PUT", "/connectors/s/config", {**BASE, "memory.sasl.password": text})
    assert "p4ss" not in answer.text
    if answer.code == 201:
        assert answer.body["config"]["memory.sasl.password"] == "[hidden]"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_log_of_a_worker_hides_what_others_log(rest: Any, monkeypatch: Any, capfd: Any, *, as_json: bool) -> None:
    """Any module of acktrail may log a value, or a traceback with one: the worker's lines show neither."""
    monkeypatch.setenv("REST_TEST_WORD", "s3cret word")
    assert rest("PUT", "/connectors/s/config", {**BASE, "memory.hush": "${env:REST_TEST_WORD}"}).code == 201
    monkeypatch.setattr(logging.getLogger("acktrail"), "handlers", [])
    log_to_stderr(as_json=as_json, redact=rest.worker.redact_all)
    log = logging.getLogger("acktrail.any.module")
    log.warning("cannot use %s", "S3CRET WORD")
    try:
        raise ValueError("s3cret word")
    except ValueError:
        log.exception("failed")
    told = capfd.readouterr().err
    assert "s3cret" not in told.lower()
    assert "cannot use [hidden]" in told


def test_a_request_that_is_not_ended_is_closed(rest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header or body: when its time is over the worker closes the connection."""
    for module in ("bounded_listener", "http_server"):
        monkeypatch.setattr(f"acktrail.serving.{module}.PATIENCE_S", 2.0)
    with socket.create_connection(rest.server.address.rsplit(":", 1), timeout=3 * PATIENCE_S) as header:
        header.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with socket.create_connection(rest.server.address.rsplit(":", 1), timeout=3 * PATIENCE_S) as body:
            head = f"POST /connectors HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            body.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
            assert header.recv(1) == b""
            told = b"".join(iter(lambda: body.recv(10_000), b""))
            assert told.startswith(b"HTTP/1.1 400"), told


def test_who_is_answered_needs_no_free_place(rest: Any) -> None:
    """Many requests that are begun and not ended keep nobody from an answer, and take no more places than there are."""
    listener = rest.server._listener
    listener.most = 4
    with ExitStack() as opened:
        for _ in range(20):
            begun = socket.create_connection(rest.server.address.rsplit(":", 1), timeout=30)
            opened.enter_context(begun).sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert [rest("GET", "/connectors").code for _ in range(10)] == [200] * 10
        assert len(listener._connections) <= 4


def test_who_gives_way_to_a_new_caller() -> None:
    """The connection that has waited longest; where all are being answered, the new caller; late ones give way at once,
    and never more than the bound are open."""
    clock = FakeClock()
    with BoundedListener(socket.create_server(("127.0.0.1", 0)), most=3, clock=clock) as listener:
        listener.setblocking(False)
        callers = []

        def call() -> socket.socket | None:
            callers.append(socket.create_connection(listener.getsockname(), timeout=30))
            clock.advance(1)
            return accepted()

        def accepted() -> socket.socket | None:
            try:
                return listener.accept()[0]
            except BlockingIOError:
                return None

        first, second, third = call(), call(), call()
        assert None not in {first, second, third}
        for number in (0, 2):
            listener.working(callers[number].getsockname(), is_so=True)
        assert call() is None
        assert callers[1].recv(1) == b""
        second.close()
        fourth = accepted()
        assert fourth is not None
        listener.working(callers[3].getsockname(), is_so=True)
        assert call() is None
        assert callers[4].recv(1) == b""
        listener.working(callers[0].getsockname(), is_so=False)
        clock.advance(PATIENCE_S + 1)
        listener.close_late()
        assert callers[0].recv(1) == b""
        for number in (2, 3):
            callers[number].setblocking(False)
            with pytest.raises(BlockingIOError):
                callers[number].recv(1)
        for each in (*callers, first, third, fourth):
            each.close()
