"""Who reaches the worker's REST interface, and what they get of its secrets: nothing. A real worker's process, and a
broker of the attacker's that writes down what clients log in with."""

from __future__ import annotations

import json
import re
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers.connect_worker import ConnectWorker, connect_worker
from servers.workload import until

SECRET = "hunter2-hunter2"
VALIDATE = "/connector-plugins/ShareGroupStateSource/config/validate"


@dataclass
class EvilBroker:
    """Speaks enough of Kafka's protocol to be sent a password by SASL/PLAIN; `heard` is all that it was sent."""

    address: str = ""
    heard: bytearray = field(default_factory=bytearray)

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            stream = connection.makefile("rb")
            while head := stream.read(4):
                frame = stream.read(*struct.unpack(">i", head))
                self.heard += frame
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == 18:  # ApiVersions, in version 0 only: error 35 for others
                    kinds = ((3, 0, 9), (17, 0, 1), (18, 0, 0), (36, 0, 0))
                    answer = struct.pack(">hi", 35 if version else 0, len(kinds))
                    answer += b"".join(struct.pack(">hhh", *kind) for kind in kinds)
                else:  # SaslHandshake: the mechanism is known
                    answer = struct.pack(">hih5s", 0, 1, 5, b"PLAIN")
                body = struct.pack(">i", correlation) + answer
                connection.sendall(struct.pack(">i", len(body)) + body)


@pytest.fixture
def evil() -> Iterator[EvilBroker]:
    broker = EvilBroker()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=broker.serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        broker.address = f"127.0.0.1:{listening.getsockname()[1]}"
        threading.Thread(target=accept, daemon=True).start()
        yield broker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    """As a person starts it first: an address, a store, nothing about who may call."""
    folder = tmp_path_factory.mktemp("worker")
    own = {"rest.listener": "127.0.0.1:0", "config.storage.dir": str(folder / "store")}
    with connect_worker(folder, own) as started:
        (folder / "secrets").mkdir()
        (folder / "secrets/victim.txt").write_text(SECRET)
        started.environment = {**started.environment, "VICTIM": SECRET}
        started.start()
        yield started


def connector(worker: ConnectWorker, name: str, **texts: str) -> dict[str, str]:
    """Of an honest user, stopped: a literal password for a broker that is away."""
    config = {
        "connector.class": "ShareGroupStateSource",
        "sink.tables": str(worker.folder / "tables"),
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "acktrail",
        "kafka.sasl.password": SECRET,
        **texts,
    }
    code, text = worker.ask("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})
    assert code == 201, text
    return config


def test_another_account_of_the_machine_gets_nothing(worker: ConnectWorker, tmp_path: Path) -> None:
    """Another account of the machine reaches 127.0.0.1 and has no token: it sees 401, and the operator sees who it was;
    the token is in a file that only the worker's user reads."""
    connector(worker, "guarded")
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer guessed-guessed-guessed"}):
        for method, path in (("GET", "/connectors"), ("PATCH", "/connectors/guarded/config"), ("GET", "/openapi.json")):
            code, text = worker.ask(method, path, {"kafka.bootstrap.servers": "127.0.0.1:1"}, **headers)
            assert (code, SECRET in text) == (401, False)
    file = worker.folder / "store/rest.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert worker.ask("GET", "/connectors")[0] == 200
    refused = until(lambda: [line for line in worker.said if re.search(r"refused 401 by 127\.0\.0\.1:\d+", line)])
    assert any("PATCH /connectors/guarded/config" in line for line in refused)
    assert not any(worker.token in line for line in worker.said)


CHANGES: dict[str, dict[str, Any]] = {
    "address": {"kafka.bootstrap.servers": "EVIL"},
    "protocol": {"kafka.security.protocol": "SASL_SSL"},
    "mechanism": {"kafka.sasl.mechanism": "OAUTHBEARER"},
    "no protocol": {"kafka.security.protocol": None},
    "authority": {"kafka.ssl.ca.location": "AUTHORITY"},
    "host name": {"kafka.ssl.endpoint.identification.algorithm": ""},
    "token endpoint": {"kafka.sasl.oauthbearer.token.endpoint.url": "https://evil.example"},
    "another source": {"connector.class": "ShareGroupOffsetsSource"},
    "shown text": {"kafka.bootstrap.servers": "EVIL", "kafka.sasl.password": "[hidden]"},
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_kept_password_goes_nowhere_else(worker: ConnectWorker, evil: EvilBroker, how: str) -> None:
    """Who holds the token changes where or how a connector connects, by PATCH or PUT, and keeps its password, to read
    it at a broker of theirs: 400 names the key to send again, and the broker hears nothing of it."""
    name = f"kept-{how}"
    config = connector(worker, name)
    places = {"EVIL": evil.address, "AUTHORITY": f"{worker.folder}/evil.pem"}
    changes = {key: places.get(text, text) for key, text in CHANGES[how].items()}
    full = {**config, "kafka.sasl.password": "[hidden]", **changes}
    path = f"/connectors/{name.replace(' ', '%20')}"
    for method, body in (("PATCH", changes), ("PUT", {key: text for key, text in full.items() if text is not None})):
        code, text = worker.ask(method, f"{path}/config", body)
        assert (code, "kafka.sasl.password: " in text, SECRET in text) == (400, True, False), text
    assert worker.ask("PUT", f"{path}/resume")[0] == 202
    assert worker.ask("PATCH", f"{path}/config", {"kafka.bootstrap.servers": evil.address})[0] == 400
    again = {"kafka.bootstrap.servers": evil.address, "kafka.sasl.password": "their-own"}
    assert worker.ask("PATCH", f"{path}/config", again)[0] == 200
    until(lambda: b"their-own" in evil.heard, timeout_s=60)
    assert SECRET.encode() not in evil.heard
    assert worker.ask("DELETE", path)[0] == 204


def test_a_kept_reference_goes_nowhere_else(worker: ConnectWorker, evil: EvilBroker) -> None:
    """An operator wrote a reference as a connector's password. A caller with the token changes the address and sends no
    password of their own, so that the reference would go there: 400, as for a password."""
    connector(worker, "refers", **{"kafka.sasl.password": "${file:secrets/victim.txt}"})
    for changes in ({}, {"kafka.sasl.password": "[hidden]"}, {"kafka.sasl.username": "else"}):
        code, text = worker.ask(
            "PATCH", "/connectors/refers/config", {"kafka.bootstrap.servers": evil.address, **changes}
        )
        assert (code, "kafka.sasl.password: " in text) == (400, True), text
    assert not evil.heard


def test_a_login_for_all_connectors_goes_only_where_its_file_says(tmp_path: Path, evil: EvilBroker) -> None:
    """Who holds the token makes a connector of their own with another address, and leaves the password to [connector]
    of the worker's file: 400; with the file's own address it is used, and an operator's file may name any."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    own = {f"connector.kafka.{key}": text for key, text in {**login, "sasl.password": "${env:VICTIM}"}.items()}
    own |= {"rest.listener": "127.0.0.1:0", "connector.kafka.bootstrap.servers": "127.0.0.1:9"}
    base = {"connector.class": "ShareGroupStateSource", "sink.tables": str(tmp_path / "tables")}
    to_evil = {**base, "kafka.bootstrap.servers": evil.address}
    with connect_worker(tmp_path, own, {"name": "operators", "config": {**base, "kafka.client.id": "x"}}) as worker:
        worker.environment = {**worker.environment, "VICTIM": SECRET}
        worker.start()
        for more in ({}, {"kafka.sasl.password": "[hidden]"}):
            code, text = worker.ask("PUT", "/connectors/own/config", {**to_evil, **more})
            assert (code, "kafka.sasl.password: " in text, SECRET in text) == (400, True, False), text
            found = worker.ask("PUT", VALIDATE, {**to_evil, **more, "name": "own"})[1]
            assert (json.loads(found)["error_count"], SECRET in found) == (1, False), found
        assert worker.ask("PUT", "/connectors/own/config", {**base, "tasks.max": "2"})[0] == 201
        for name in ("own", "operators"):
            assert worker.ask("PATCH", f"/connectors/{name}/config", to_evil)[0] == 400
            forgets = {**to_evil, "kafka.sasl.password": None}
            assert worker.ask("PATCH", f"/connectors/{name}/config", forgets)[0] == 400
        assert not evil.heard


def test_a_validation_shows_no_kept_secret(worker: ConnectWorker) -> None:
    """Who holds the token sends [hidden] back in a validation for another plug-in, to which the key is no password and
    so is shown: the answer has no value."""
    mask = {
        "transforms": "m",
        "transforms.m.type": "Mask",
        "transforms.m.key": SECRET,
        "transforms.m.columns": "group_id",
    }
    mask |= {"connector.class": "ShareGroupOffsetsSource", "kafka.security.protocol": "PLAINTEXT"}
    made = connector(worker, "masked", **mask)
    asked = {"name": "masked", "connector.class": "ShareGroupStateSource", "transforms.m.key": "[hidden]"}
    assert SECRET not in worker.ask("PUT", VALIDATE, asked)[1]
    assert SECRET not in worker.ask("PUT", "/connectors/masked/config", {**made, **asked})[1]
    assert SECRET not in worker.ask("GET", "/connectors/masked")[1]


@pytest.mark.parametrize("reference", ["${file:secrets/victim.txt}", "${env:VICTIM}", "${file:worker.toml}"])
def test_a_reference_becomes_no_name(worker: ConnectWorker, reference: str) -> None:
    """Who holds the token puts a reference into a key whose value is seen from outside, as the name of a folder or of a
    broker: 400 says that only passwords and files of keys take one, and nothing is made."""
    for key in ("sink.tables", "kafka.bootstrap.servers", "kafka.client.id", "kafka.sasl.username", "flush.records"):
        texts = {"connector.class": "ShareGroupStateSource", "kafka.bootstrap.servers": "127.0.0.1:9"}
        texts |= {"sink.tables": str(worker.folder / "tables"), key: f"{worker.folder}/out/{reference}"}
        code, text = worker.ask("PUT", "/connectors/named/config", texts)
        assert (code, f"{key}: only passwords" in text, SECRET in text) == (400, True, False), text
    assert not (worker.folder / "out").exists()


def test_a_validation_tells_nothing_of_files(worker: ConnectWorker, tmp_path: Path) -> None:
    """Who holds the token asks for paths by references of a password: one answer, whatever is there, in a folder that
    connectors may name and elsewhere; and one answer of a change."""
    worker_folder = worker.folder / "secrets/below"
    worker_folder.mkdir()
    answers: dict[str, set[str]] = {"inside": set(), "inside, changed": set(), "outside": set()}
    for folder in (worker_folder, tmp_path):
        (folder / "file").write_bytes(b"\xff\xfe binary")
        (folder / "folder").mkdir()
        (folder / "loop").symlink_to(folder / "loop")
        for place in ("file", "folder", "absent", "loop", "file/below", "x" * 300):
            path = folder / place
            config = {"connector.class": "ShareGroupStateSource", "name": "asks", "sink.tables": "/none"}
            config |= {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.sasl.password": f"${{file:{path}}}"}
            found = worker.ask("PUT", VALIDATE, config)[1].replace(str(path), "PATH")
            changed = worker.ask("PUT", "/connectors/asks/config", config)[1].replace(str(path), "PATH")
            if folder == worker_folder:
                answers["inside"].add(found)
                answers["inside, changed"].add(changed)
            else:
                answers["outside"] |= {text[text.find("kafka.sasl.password: ") :][:80] for text in (found, changed)}
    assert {where: len(told) for where, told in answers.items()} == dict.fromkeys(answers, 1), answers
    assert "outside of the allowed folders" in "".join(answers["outside"])


def test_the_environment_and_other_folders_are_closed(worker: ConnectWorker, tmp_path: Path) -> None:
    """Who holds the token names variables and files that no operator allowed, to have them sent as a password: 400 says
    which line of the worker's file would allow it."""
    outside = tmp_path / "secret"
    outside.write_text(SECRET)
    (worker.folder / "secrets/link").symlink_to(outside)
    base = {
        "connector.class": "ShareGroupStateSource",
        "sink.tables": "/none",
        "kafka.bootstrap.servers": "127.0.0.1:9",
    }
    places = {"${env:VICTIM}": "variables", f"${{file:{outside}}}": "paths", "${file:secrets/link}": "paths"}
    for text, line in places.items():
        code, told = worker.ask("PUT", "/connectors/reads/config", {**base, "kafka.sasl.password": text})
        assert (code, f"config.providers.allowed.{line}" in told, SECRET in told) == (400, True, False), told


@pytest.mark.parametrize("place", ["/etc/hostname", "worker.toml", "store/rest.token", "secrets/link"])
def test_a_client_sends_no_file_that_a_reference_may_not_name(
    worker: ConnectWorker, tmp_path: Path, place: str
) -> None:
    """Who holds the token names a file by its path where a client reads one, and an address of theirs that it is sent
    to, as Azure's federated tokens are: 400, as for a reference, and nothing is sent."""
    (tmp_path / "secret").write_text(SECRET)
    (worker.folder / "secrets/link").unlink(missing_ok=True)
    (worker.folder / "secrets/link").symlink_to(tmp_path / "secret")
    path = str(worker.folder / place)
    config = {
        "connector.class": "ShareGroupStateSource",
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "sink.tables": "az://bucket/tables",
        "sink.option.azure_authority_host": "http://127.0.0.1:1",
        "sink.option.azure_storage_sas_token": "their-own",
    }
    files = ("sink.option.azure_federated_token_file", "sink.option.google_service_account", "kafka.ssl.ca.location")
    for key in files:
        code, told = worker.ask("PUT", "/connectors/sends/config", {**config, key: path})
        assert (code, "outside of the allowed folders" in told or "the worker's own" in told) == (400, True), told
        found = json.loads(worker.ask("PUT", VALIDATE, {**config, "name": "sends", key: path})[1])
        assert found["error_count"] == (0 if place == "secrets/link" else 1)


def test_the_workers_own_secrets_are_no_values_of_connectors(worker: ConnectWorker) -> None:
    """Who holds the token, or a token that somebody else revokes later, has the worker send its own token, file or kept
    connectors to them: 400."""
    base = {
        "connector.class": "ShareGroupStateSource",
        "sink.tables": "/none",
        "kafka.bootstrap.servers": "127.0.0.1:9",
    }
    connector(worker, "kept")
    for place in ("store/rest.token", "store/kept.json", "worker.toml", "store/../worker.toml"):
        code, told = worker.ask("PUT", "/connectors/own/config", {**base, "kafka.sasl.password": f"${{file:{place}}}"})
        assert (code, "outside of the allowed folders" in told) == (400, True), told


def test_each_change_is_a_line_in_the_log(worker: ConnectWorker) -> None:
    """Who holds the token changes a connector: the operator sees from where, which connector and which keys, done or
    refused, and no value; a name with a line break is one line still."""
    connector(worker, "told")
    worker.ask("PATCH", "/connectors/told/config", {"flush.records": "77077", "linger.ms": "5"})
    worker.ask("PATCH", "/connectors/told/config", {"kafka.bootstrap.servers": "evil.example:1"})
    worker.ask("PUT", "/connectors/told/stop")
    worker.ask("PUT", "/connectors/a%0AREST%3A%20done/config", {"forged\nREST: done 200 by": "77077"})
    worker.ask("GET", "/connectors", Host="evil.example")
    lines = until(lambda: [line for line in worker.said if "evil.example" in line] and worker.said)
    peer = r"127\.0\.0\.1:\d+"
    for wanted in (
        rf"REST: done 201 by {peer}: POST /connectors, connector told, keys .*kafka\.sasl\.password",
        rf"REST: done 200 by {peer}: PATCH /connectors/told/config, keys flush\.records, linger\.ms",
        rf"REST: refused 400 by {peer}: PATCH /connectors/told/config, keys kafka\.bootstrap\.servers",
        rf"REST: done 204 by {peer}: PUT /connectors/told/stop",
        rf"rest\.listener: refused 403 by {peer}: the Host header names another server, evil\.example",
    ):
        assert any(re.search(wanted, line) for line in lines), wanted
    assert not any(word in line for line in lines for word in (SECRET, "77077", "evil.example:1"))
    assert not any(line.startswith("REST: done 200 by") for line in lines)


@pytest.mark.parametrize("token", ["a", "fifteen letters"])
def test_a_token_that_can_be_guessed_is_none(tmp_path: Path, token: str) -> None:
    """Anybody who reaches the port guesses a short token: the worker does not start with one."""
    with connect_worker(tmp_path, {"rest.listener": "127.0.0.1:0", "rest.token": token}) as worker:
        worker.start()
        assert worker.wait() == 3
        assert "rest.token has fewer than 16 characters" in "\n".join(worker.said)


def test_a_token_that_others_read_is_none(tmp_path: Path) -> None:
    """Another account reads the file of the token: the worker does not start, whether it made the file or a person."""
    for own in ({"rest.token": "${file:token}"}, {"config.storage.dir": str(tmp_path)}):
        for name in ("token", "rest.token"):
            (tmp_path / name).write_text("long enough, and for all to read")
            (tmp_path / name).chmod(0o644)
        with connect_worker(tmp_path, {"rest.listener": "127.0.0.1:0", **own}) as worker:
            worker.start()
            assert worker.wait() == 3
            assert "other users can read or write" in "\n".join(worker.said)
    with connect_worker(tmp_path, {"rest.listener": "127.0.0.1:0", "rest.token": "literal-literal-literal"}) as worker:
        (tmp_path / "worker.toml").chmod(0o644)
        worker.start()
        assert worker.wait() == 3
        assert f"chmod o= {tmp_path}/worker.toml" in " ".join(worker.said)


def test_a_unix_socket_lets_in_only_its_user(tmp_path: Path) -> None:
    """Another account of the machine finds the socket, whose mode keeps it out; the worker's user needs no token, and
    is in the log by number. A socket that a killed worker left behind is taken over."""
    path = tmp_path / "rest.sock"
    refused = re.compile(r"refused 404 by user \d+: DELETE /connectors/none")
    with connect_worker(tmp_path, {"rest.socket": str(path)}) as worker:
        for _ in range(2):
            worker.start()
            until(lambda: worker.said.count(f"REST interface at unix:{path}") == worker.runs)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert worker.ask("GET", "/connectors", Authorization="") == (200, "[]")
            assert worker.ask("GET", "/connectors", Authorization="", Host="evil.example")[0] == 403
            assert worker.ask("DELETE", "/connectors/none", Authorization="")[0] == 404
            until(lambda: len(list(filter(refused.search, worker.said))) == worker.runs)
            worker.kill()
        assert not (tmp_path / "connect/rest.token").exists()


def test_a_worker_without_a_store_keeps_its_token(tmp_path: Path) -> None:
    """A worker that keeps no connectors makes a token as well, and has the same after a restart; where it can keep none
    it says which line to add."""
    with connect_worker(tmp_path, {"rest.listener": "127.0.0.1:0"}) as worker:
        found = set()
        for _ in range(2):
            worker.start()
            assert worker.ask("GET", "/connectors")[0] == 200
            found.add(worker.token)
            assert worker.stop() == 0
            worker.said.clear()
        assert (len(found), len(min(found)) >= 16) == (1, True)
        (tmp_path / "file").write_text("")
        worker.environment = {"STATE_DIRECTORY": str(tmp_path / "file")}
        worker.start()
        assert worker.wait() == 3
        assert "config.storage.dir" in "\n".join(worker.said)
