"""What files of an operator give a worker, and what its account has at storages: nobody with the REST token has it sent
to an address of theirs. A real worker's process; what its owner wrote works on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.connect_worker import ConnectWorker, connect_worker
from servers.workload import until

SECRET = "hunter2-hunter2"
EVIL = "127.0.0.1:1"
LOGIN = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
SOURCE = {"connector.class": "ShareGroupStateSource", "flush.records": "7"}
EVIL_ENDPOINT = "http://127.0.0.1:1"


def asked(worker: ConnectWorker, name: str, config: dict[str, Any]) -> tuple[int, str]:
    """Code and text of the answer to a new connector, stopped; the worker has none of this name before and after."""
    new = {"name": name, "config": config, "initial_state": "STOPPED"}
    code, text = worker.ask("POST", "/connectors", new)
    assert SECRET not in text
    if code == 201:
        assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204
    return code, text


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    """A password and a service account in [connector], a connector in a file with a login and a place of its own."""
    folder = tmp_path_factory.mktemp("worker")
    (folder / "secrets").mkdir()
    for place in ("kpw", "secrets/kpw", "secrets/own", "own"):
        (folder / place).write_text(SECRET)
    (folder / "gcs.json").write_text("{}")
    (folder / "secrets.env").write_text(f"KAFKA_PASSWORD={SECRET}\n")
    shared = {**LOGIN, "kafka.bootstrap.servers": "127.0.0.1:9", "kafka.sasl.password": "${file:secrets/kpw}"}
    shared |= {"sink.tables": str(folder / "tables"), "sink.option.google_service_account": str(folder / "gcs.json")}
    own = {"rest.listener": "127.0.0.1:0", "config.providers.allowed.variables": "VICTIM*"}
    own |= {f"connector.{key}": text for key, text in shared.items()}
    config = {**SOURCE, "kafka.bootstrap.servers": "127.0.0.1:8", "kafka.sasl.password": "${env:VICTIM}"}
    config |= {"kafka.ssl.ca.location": "/etc/ssl/ca.pem", "kafka.sasl.username": "${env:OPERATOR}"}
    with connect_worker(folder, own, {"name": "operators", "config": config}) as started:
        started.environment = {**started.environment, "VICTIM": SECRET, "VICTIM_2": SECRET, "OPERATOR": "operator"}
        started.start()
        yield started


@pytest.mark.parametrize(
    "place", ["${file:secrets/kpw}", "${env:VICTIM}", "${file:secrets/link}", "${file:secrets/hard}"]
)
def test_a_reference_that_is_shown_goes_nowhere_else(worker: ConnectWorker, place: str) -> None:
    """Who holds the token reads a reference of the operator's, and sends it with an address of theirs, under any name:
    400; one of the same kind that no file of the operator's has is theirs to use."""
    with_links = worker.folder / "secrets"
    if not (with_links / "link").exists():
        (with_links / "link").symlink_to(with_links / "kpw")
        (with_links / "hard").hardlink_to(with_links / "kpw")
    config = {**SOURCE, **LOGIN, "kafka.bootstrap.servers": EVIL, "kafka.sasl.password": place}
    for key in ("kafka.sasl.password", "sink.option.aws_secret_access_key"):
        code, told = asked(worker, "evil", {**config, "kafka.sasl.password": "theirs", key: place})
        assert (code, f"{key}: " in told, "operator's file" in told) == (400, True, True), told
    code, told = worker.ask("PATCH", "/connectors/operators/config", {k: config[k] for k in sorted(config)})
    assert (code, "kafka.sasl.password: " in told) == (400, True), told
    for own in ("${file:secrets/own}", "${env:VICTIM_2}"):
        assert asked(worker, "honest", {**config, "kafka.sasl.password": own})[0] == 201


def test_what_an_operator_wrote_works_on(worker: ConnectWorker) -> None:
    """A connector of a file has references to any place, and keeps them when REST changes another key; one of REST has
    the login of [connector] at its address, also where it repeats what it saw there."""
    assert worker.ask("PATCH", "/connectors/operators/config", {"flush.records": "8"})[0] == 200
    assert worker.ask("POST", "/connectors/operators/restart?includeTasks=true")[0] == 202
    code, text = worker.ask("GET", "/connectors/operators/config")
    assert (code, json.loads(text)["kafka.sasl.username"]) == (200, "${env:OPERATOR}")
    assert asked(worker, "inherits", SOURCE)[0] == 201
    assert asked(worker, "repeats", {**SOURCE, "kafka.sasl.password": "${file:secrets/kpw}"})[0] == 201
    same = {**LOGIN, "kafka.bootstrap.servers": "127.0.0.1:9", "kafka.sasl.password": "${file:secrets/kpw}"}
    assert asked(worker, "repeats-all", {**SOURCE, **same})[0] == 201


@pytest.mark.parametrize(
    "place", ["connector-0.json", "secrets.env:KAFKA_PASSWORD", "secrets.env", "own", "worker.toml"]
)
def test_files_beside_the_workers_are_no_secrets_of_connectors(worker: ConnectWorker, place: str) -> None:
    """Who holds the token names files of the operator's, by reference or where a client reads a file by its path: 400
    has the line that would allow others; files of connectors stay closed where that line names their folder."""
    config = {**SOURCE, **LOGIN, "kafka.bootstrap.servers": EVIL}
    code, told = asked(worker, "evil", {**config, "kafka.sasl.password": f"${{file:{place}}}"})
    line = f'config.providers.allowed.paths = \\"{worker.folder}/secrets,{worker.folder}\\"'
    assert (code, line in told) == (400, True), told
    tables = {"sink.tables": "az://bucket/t", "sink.option.azure_authority_host": EVIL_ENDPOINT}
    path = str(worker.folder / place.partition(":")[0])
    code, told = asked(worker, "evil", {**SOURCE, **tables, "sink.option.azure_federated_token_file": path})
    assert (code, "sink.option.azure_federated_token_file: " in told, line in told) == (400, True, True), told


def test_files_of_connectors_are_the_workers_own(tmp_path: Path) -> None:
    """Who holds the token names the file of a connector in a folder that is allowed: 400."""
    own = {"rest.listener": "127.0.0.1:0", "config.providers.allowed.paths": "."}
    file = {"name": "operators", "config": {**SOURCE, "kafka.bootstrap.servers": "127.0.0.1:9", "sink.tables": "/none"}}
    with connect_worker(tmp_path, own, file) as worker:
        worker.start()
        base = {**SOURCE, **LOGIN, "kafka.bootstrap.servers": EVIL, "sink.tables": "/none"}
        for more in (
            {"kafka.sasl.password": "${file:connector-0.json}"},
            {"kafka.ssl.key.location": "connector-0.json"},
        ):
            whole = {key: text.replace("connector-0", f"{tmp_path}/connector-0") for key, text in more.items()}
            code, told = asked(worker, "evil", {**base, **whole})
            assert (code, "the worker's own" in told) == (400, True), told


def test_the_file_of_a_service_account_goes_only_where_its_file_says(worker: ConnectWorker) -> None:
    """Who holds the token leaves the service account to [connector] and names another server, or sends the path along:
    400, as for a password."""
    evil = {"sink.option.google_base_url": EVIL_ENDPOINT, "sink.option.allow_http": "true"}
    key = "sink.option.google_service_account"
    for more in ({}, {key: str(worker.folder / "gcs.json")}, {key: "[hidden]"}, {"sink.tables": "gs://evil/t"}):
        code, told = asked(worker, "evil", {**SOURCE, **evil, **more})
        assert (code, f"{key}: " in told) == (400, True), told


def test_a_store_is_no_operator(tmp_path: Path) -> None:
    """Who holds the token makes a connector before the operator has a password: a worker that starts with one later, or
    restarts the connector, does not send it there."""
    own = {"rest.listener": "127.0.0.1:0", "config.storage.dir": str(tmp_path / "store")}
    own |= {f"connector.{key}": text for key, text in {**LOGIN, "kafka.bootstrap.servers": "127.0.0.1:9"}.items()}
    evil = {**SOURCE, "kafka.bootstrap.servers": EVIL, "sink.tables": str(tmp_path / "t")}
    with connect_worker(tmp_path, own) as worker:
        worker.start()
        assert worker.ask("PUT", "/connectors/evil/config", {**evil, "kafka.sasl.password": "theirs"})[0] == 201
        assert worker.ask("PUT", "/connectors/plain/config", {**evil, "kafka.security.protocol": "PLAINTEXT"})[0] == 201
        assert worker.stop() == 0
        with (tmp_path / "worker.toml").open("a") as file:
            file.write(f'"connector.kafka.sasl.password" = "{SECRET}"\n')
        worker.said.clear()
        worker.start()
        until(lambda: worker.ask("GET", "/connectors")[1] == '["evil","plain"]', what="both connectors")
        state = json.loads(worker.ask("GET", "/connectors/plain/status")[1])["connector"]
        assert (state["state"], "kafka.sasl.password" in state["trace"]) == ("FAILED", True), state
        code, told = worker.ask("POST", "/connectors/plain/restart")
        assert (code, "kafka.sasl.password: [connector]" in told) == (400, True), told
        assert json.loads(worker.ask("GET", "/connectors/evil/status")[1])["connector"]["state"] == "RUNNING"


ADDRESSES = {
    "s3": ("aws_endpoint", "aws_endpoint_url", "endpoint", "AWS_STS_ENDPOINT", "aws_metadata_endpoint", "proxy_url"),
    "az": (
        "azure_authority_host",
        "azure_msi_endpoint",
        "azure_storage_endpoint",
        "aws_container_credentials_full_uri",
    ),
    "gs": ("google_base_url", "allow_http", "allow_invalid_certificates"),
}
THEIR_OWN = {
    "s3": ("aws_access_key_id", "aws_secret_access_key"),
    "az": ("azure_storage_account_key",),
    "gs": ("google_service_account_key",),
}


@pytest.mark.parametrize(
    "variable", ["", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "GOOGLE_SERVICE_ACCOUNT", "AWS_PROFILE"]
)
def test_credentials_of_the_environment_go_to_no_address_of_a_caller(tmp_path: Path, variable: str) -> None:
    """Who holds the token names a storage's server, or hides one in an account or a region: 400 names the variables,
    and without any says that the machine's identity is none of theirs. Their own credentials go anywhere where there
    are no others; the address of [connector] is used, with their tables."""
    own = {"rest.listener": "127.0.0.1:0", "connector.kafka.bootstrap.servers": "127.0.0.1:9"}
    own |= {"connector.sink.option.aws_endpoint": "http://minio.example:9000", "lease": False}
    with connect_worker(tmp_path, own) as worker:
        worker.environment = {**worker.environment, **({variable: SECRET} if variable else {})}
        worker.start()
        for scheme, options in ADDRESSES.items():
            base = {**SOURCE, "name": "evil", "sink.tables": f"{scheme}://bucket/t"}
            tried = dict.fromkeys(options, "true" if scheme == "gs" else EVIL_ENDPOINT)
            tried |= {"aws_region": "x.evil.example/", "azure_storage_account_name": "evil.example/"}
            for option, text in tried.items():
                key = f"sink.option.{option}"
                code, told = worker.ask("PUT", "/connectors/evil/config", {**base, key: text})
                reason = variable or "the identity of the worker's machine"
                assert (code, f"{key}: " in told, reason in told, SECRET in told) == (400, True, True, False), told
                theirs = {**base, key: text, **{f"sink.option.{each}": "their-own" for each in THEIR_OWN[scheme]}}
                found = worker.ask("PUT", "/connector-plugins/ShareGroupStateSource/config/validate", theirs)[1]
                assert (json.loads(found)["error_count"] > 0) == bool(variable), found
        half = {"sink.tables": "s3://bucket/t", "sink.option.endpoint": EVIL_ENDPOINT}
        half["sink.option.aws_secret_access_key"] = "half of a pair, with which the client looks for others"
        assert worker.ask("PUT", "/connectors/evil/config", {**SOURCE, **half})[0] == 400
        allowed = {**SOURCE, "name": "honest", "sink.tables": "s3://bucket/t", "sink.option.aws_region": "eu-west-1"}
        for more in ({}, {"sink.option.aws_endpoint": "http://minio.example:9000"}):
            found = worker.ask("PUT", "/connector-plugins/ShareGroupStateSource/config/validate", {**allowed, **more})[
                1
            ]
            assert json.loads(found)["error_count"] == 0, found


def test_a_caller_names_no_program(worker: ConnectWorker) -> None:
    """Who holds the token has Kafka's client load a library, or run a command for a ticket: 400, of source and sink."""
    for key in ("kafka.plugin.library.paths", "kafka.sasl.kerberos.kinit.cmd"):
        code, told = asked(worker, "evil", {**SOURCE, key: "/tmp/evil"})
        assert (code, f"{key}: the worker would run it" in told) == (400, True), told
