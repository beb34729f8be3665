"""No answer, no log and no trace has a secret."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from broker.workload import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acktrail.errors import ConfigurationError, InputError

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
TROUBLES = (None, InputError, ConfigurationError, KeyError, ValueError)
SECRETS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=6, max_size=20).map(
    lambda text: "S" + text.strip() + "'\"\\7"
)


def quoting(kind: type[Exception]) -> Any:
    return lambda config: kind(f"cannot use {config!r} {json.dumps({k: str(v) for k, v in config.items()})}")


def forms(secret: str) -> set[str]:
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    secret=SECRETS,
    trouble=st.sampled_from(TROUBLES),
    where=st.booleans(),
)
def test_no_secret_is_ever_shown(
    rest: Any, world: Any, caplog: Any, capfd: Any, secret: str, trouble: Any, where: bool
) -> None:
    """A random secret in every key that sounds or is typed secret, valid or not, while source or task fail with
    errors that quote the whole configuration: it is in no answer and in no log."""
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    world.start_error = quoting(trouble) if trouble and where else None
    world.poll_error = quoting(trouble) if trouble and not where else None
    secrets = dict.fromkeys(SECRET_KEYS, secret)
    config = {**BASE, **secrets}
    answers = [rest("POST", "/connectors", {"name": "s", "config": config})]
    assert answers[0].code == 400
    answers.append(rest("PUT", "/connector-plugins/MemorySource/config/validate", {**config, "name": "s"}))
    del config["memory.secret.number"]
    answers.append(rest("PUT", "/connectors/s/config", config))
    assert answers[-1].code == 201, answers[-1].text
    if trouble:
        until(lambda: "FAILED" in rest("GET", "/connectors/s/status").text)
    paths = ("", "/config", "/status", "/tasks", "/tasks-config", "/offsets", "/topics")
    answers += [rest("GET", f"/connectors/s{path}") for path in paths]
    answers.append(rest("GET", "/connectors?expand=info&expand=status"))
    answers.append(rest("PUT", "/connectors/s/config", {**config, "flush.interval.ms": secret}))
    answers.append(rest("DELETE", "/connectors/s"))
    outputs = capfd.readouterr()
    seen = "\n".join([*(answer.text for answer in answers), caplog.text, outputs.out, outputs.err])
    assert not [form for form in forms(secret) if form in seen], seen


def test_hidden_keeps_the_value(rest: Any) -> None:
    """What is shown can be sent back: the worker keeps what it has. In PUT and PATCH."""
    rest("PUT", "/connectors/s/config", {**BASE, "memory.sasl.password": "old-secret", "memory.hush": "other"})
    shown = rest("GET", "/connectors/s/config").body
    assert (shown["memory.sasl.password"], shown["memory.hush"]) == ("[hidden]", "[hidden]")
    assert rest("PUT", "/connectors/s/config", {**shown, "memory.word": "x"}).code == 200
    assert rest("PATCH", "/connectors/s/config", {"memory.hush": "[hidden]", "memory.word": None}).code == 200
    source = rest.worker.runs()["s"].plan.source
    assert (source.config["memory.sasl.password"], source.config["memory.hush"].value) == ("old-secret", "other")


def test_references_are_shown_and_their_values_are_not(rest: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """Also of keys whose name is harmless, and in a traceback of the plug-in."""
    monkeypatch.setenv("REST_TEST_WORD", "from-the-environment")
    file = tmp_path / "secret"
    file.write_text("from-the-file\n")
    config = {**BASE, "memory.word": "${env:REST_TEST_WORD}", "memory.hush": f"${{file:{file}}}"}
    made = rest("PUT", "/connectors/s/config", config)
    assert made.body["config"] == {**config, "name": "s"}
    validated = rest("PUT", "/connector-plugins/MemorySource/config/validate", {**config, "name": "s"})
    assert validated.body["error_count"] == 0
    values = {each["value"]["name"]: each["value"]["value"] for each in validated.body["configs"]}
    assert (values["memory.word"], values["memory.hush"]) == (config["memory.word"], config["memory.hush"])
    source = rest.worker.runs()["s"].plan.source
    assert (source.config["memory.word"], source.config["memory.hush"].value) == (
        "from-the-environment",
        "from-the-file",
    )
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
