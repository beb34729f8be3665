"""``/connectors`` as Kafka Connect has it, and its states against a model of what was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.workload import until

from acktrail.errors import ConfigurationError
from acktrail.secrets import Providers
from acktrail_connect.worker.connector_config import resolve_config
from acktrail_connect.worker.connector_run import ConfigStore, ConnectorRun
from acktrail_connect.worker.rest.answers import Calls
from acktrail_connect.worker.task_thread import RunState

CONFIG = {"connector.class": "MemorySource", "sink.class": "MemorySink", "flush.interval.ms": "10"}
AIMS = {"pause": ("PAUSED", 202), "resume": ("RUNNING", 202), "stop": ("STOPPED", 204)}


def test_life_of_a_connector(rest: Any, world: Any) -> None:
    """Created, looked at, paused, resumed, stopped, its offsets changed, resumed, deleted: each code as in Connect, and
    rows continue where the offsets say."""
    world.logs[0].end_offset = 5
    made = rest("POST", "/connectors", {"name": "a", "config": {**CONFIG, "tasks.max": 2}})
    assert (made.code, made.headers["location"]) == (201, f"{rest.server.url}/connectors/a")
    assert made.body["config"] == {**CONFIG, "tasks.max": "2", "name": "a"}
    tasks = [{"connector": "a", "task": number} for number in range(2)]
    assert made.body["tasks"] == rest("GET", "/connectors/a").body["tasks"] == tasks
    until(lambda: rest("GET", "/connectors/a/status").body["connector"]["state"] == "RUNNING")
    partition = {"partition": "memory/AAAAAAAAAAAAAAAAAAAAAQ/0"}
    reached = {"partition": partition, "offset": {"offset": 5}}
    until(lambda: rest("GET", "/connectors/a/offsets").body["offsets"] == [reached])
    assert rest("GET", "/connectors/a/tasks").body == [
        {"id": each, "config": {**made.body["config"], "partitions": f"[{each['task']}]", "word": "w"}}
        for each in tasks
    ]
    assert rest("GET", "/connectors/a/topics").body == {"a": {"topics": ["state_records"]}}
    assert rest("PUT", "/connectors/a/pause").code == 202
    until(lambda: {each["state"] for each in _states(rest, "a")} == {"PAUSED"})
    refused = rest("PATCH", "/connectors/a/offsets", {"offsets": [{"partition": partition, "offset": {"offset": 7}}]})
    assert refused.code == 400
    assert refused.body["message"].startswith("Connectors must be in the STOPPED state before their offsets can be")
    assert rest("PUT", "/connectors/a/stop").code == 204
    changed = rest("PATCH", "/connectors/a/offsets", {"offsets": [{"partition": partition, "offset": {"offset": 7}}]})
    assert (changed.code, changed.body) == (
        200,
        {"message": "The offsets for this connector have been altered successfully"},
    )
    world.logs[0].end_offset = 9
    assert rest("PUT", "/connectors/a/resume").code == 202
    until(lambda: rest("GET", "/connectors/a/offsets").body["offsets"][0]["offset"] == {"offset": 9})
    assert offsets(world) == [0, 1, 2, 3, 4, 7, 8]
    assert rest("DELETE", "/connectors/a").code == 204
    gone = rest("GET", "/connectors/a/status")
    assert (gone.code, gone.body) == (404, {"error_code": 404, "message": "Connector a not found"})


def _states(rest: Any, name: str) -> list[Any]:
    status = rest("GET", f"/connectors/{quote(name, safe='')}/status").body
    return [status["connector"], *status["tasks"]]


def test_names_of_all_kinds(start: Any, world: Any, tmp_path: Path) -> None:
    """Work in every path, and after a restart of the worker."""
    rest = start(store=ConfigStore(tmp_path))
    for name in ("a/b", "ä ö\u2003x", "a%2Fb", "'\"<b>", "..", "x" * 300, "a?b#c&d=e", "😀", "a\\b", "+"):
        made = rest("POST", "/connectors", {"name": name, "config": CONFIG})
        assert made.code == 201, made.text
        path = made.headers["location"].removeprefix(rest.server.url)
        assert path == "/connectors/" + quote(name, safe="")
        assert rest("GET", f"{path}/config").body["name"] == name
        assert rest("GET", f"{path}/status").body["name"] == name
        assert rest("PUT", f"{path}/pause").code == 202
        assert ConfigStore(tmp_path).all()[name].target is RunState.PAUSED
        assert rest("DELETE", path).code == 204
        assert not ConfigStore(tmp_path).all()


def test_names_that_are_refused(rest: Any) -> None:
    """As by Connect: empty ones, and those with control characters."""
    told = "Connector configuration is invalid and contains the following 1 error(s):\nInvalid value "
    for name in ("", " ", "a\nb", "a\x00b", "\x7f"):
        refused = rest("POST", "/connectors", {"name": name, "config": CONFIG})
        assert (refused.code, refused.body["message"].startswith(told)) == (400, True), name
    assert rest("POST", "/connectors", {"name": "\ud800", "config": CONFIG}).code == 400
    assert rest("GET", "/connectors").body == []


def test_errors_have_connects_shape(rest: Any) -> None:
    """Codes and texts of what is not there, not allowed, not JSON, taken or contradictory."""
    assert rest("PUT", "/connectors/a/config", CONFIG).code == 201
    told = json.loads(Path(__file__).with_name("refusals.json").read_text("utf-8"))
    for method, path, body, code, message in told:
        answer = rest(method, path, None if body is None else body.encode())
        assert (answer.code, answer.body) == (code, {"error_code": code, "message": message}), path
    for body in (b"{", b"[]", b'{"config": {}}', b'{"name": "x", "config": {"a": [1]}}', b"\xff", b""):
        assert rest("POST", "/connectors", body).code == 400, body


def test_paths_and_definitions_are_connects(rest: Any) -> None:
    """A slash at the end means nothing, HEAD is GET, and definitions have their order in their group."""
    made = rest("PUT", "/connectors/a/config/", CONFIG)
    assert (made.code, made.body["tasks"]) == (201, [{"connector": "a", "task": 0}])
    assert rest("POST", "/connectors/", {"name": "b", "config": CONFIG}).code == 201
    for path in ("/", "/connectors/", "/connectors/a/status/", "/connector-plugins/"):
        assert (rest("GET", path).code, rest("HEAD", path).code) == (200, 200), path
    assert rest("GET", "/connector-plugins/DeltaSink/config").body[0]["order_in_group"] == 1


def test_defaults_are_those_that_a_connector_knows(start: Any, world: Any) -> None:
    """Another plug-in's keys mean nothing to it, and its own win."""
    rest = start(defaults={"memory.word": "the worker's", "sink.tables": "/none", "flush.interval.ms": "10"})
    for name, own in (("a", {}), ("b", {"memory.word": "its own"})):
        assert rest("PUT", f"/connectors/{name}/config", {**CONFIG, **own}).code == 201
    words = [rest.worker.runs()[name].plan.source.config["memory.word"] for name in "ab"]
    assert words == ["the worker's", "its own"]


def test_states_have_the_version_of_the_plug_in(rest: Any, tmp_path: Path) -> None:
    """Of the package that it comes from (KIP-891); where that is not known, the states have none."""
    config = {
        "connector.class": "ShareGroupStateSource",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "sink.tables": str(tmp_path),
    }
    assert rest("PUT", "/connectors/a/config", config).code == 201
    assert rest("GET", "/connectors/a/status").body["connector"]["version"] == version("acktrail")
    assert rest("PUT", "/connectors/b/config", CONFIG).code == 201
    until(lambda: len(_states(rest, "b")) == 2)
    assert {"version" in each for each in _states(rest, "b")} == {False}


def test_forty_changes_of_a_connector_at_once(rest: Any, world: Any) -> None:
    """All are carried out, one after the other; the first is 201, the others 200, and the last is what runs."""
    world.logs[0].end_offset = 5
    with ThreadPoolExecutor(40) as threads:
        put = partial(rest, "PUT", "/connectors/a/config")
        codes = [made.code for made in threads.map(lambda n: put({**CONFIG, "memory.word": str(n)}), range(40))]
    assert sorted(codes) == [200] * 39 + [201]
    word = rest("GET", "/connectors/a/config").body["memory.word"]
    until(lambda: len(_states(rest, "a")) == 2 and {each["state"] for each in _states(rest, "a")} == {"RUNNING"})
    assert rest.worker.runs()["a"].plan.source.config["memory.word"] == word


def test_a_silent_broker_holds_up_nobody(start: Any, world: Any) -> None:
    """While a source waits for its broker, states are told, wishes are taken, other connectors run; only what needs
    the broker ends with Connect's time-out."""
    rest = start(timeout_s=3.0)
    world.answers.clear()
    assert rest("PUT", "/connectors/slow/config", CONFIG).code == 201
    for _ in range(20):
        assert rest("GET", "/connectors/slow/status").code == 200
    late = rest("GET", "/connectors/slow/offsets")
    assert (late.code, late.body["message"]) == (500, "Request timed out")
    assert rest("POST", "/connectors/slow/restart?includeTasks=true").code == 202
    assert rest("POST", "/connectors/slow/restart").code == 204
    assert rest("PUT", "/connectors/slow/pause").code == 202
    assert rest("PUT", "/connectors/slow/config", {**CONFIG, "memory.word": "x"}).code == 200
    assert rest("PUT", "/connectors/other/config", CONFIG).code == 201
    assert {name: rest("GET", f"/connectors/{name}/status").code for name in ("slow", "other")} == {
        "slow": 200,
        "other": 200,
    }
    world.answers.set()
    until(lambda: _states(rest, "slow")[0]["state"] == "PAUSED")
    until(lambda: _states(rest, "other")[0]["state"] == "RUNNING")


def test_creations_wait_for_those_of_one_name_alone(rest: Any, monkeypatch: Any) -> None:
    """A creation that hangs takes no turn from those of other names."""
    subjects: list[str] = []
    turns = Calls.in_time

    async def noted(self: Calls, kind: str, connector: str, function: Any) -> Any:
        subjects.append(connector)
        return await turns(self, kind, connector, function)

    monkeypatch.setattr(Calls, "in_time", noted)
    for name in ("a", " b "):
        assert rest("POST", "/connectors", {"name": name, "config": CONFIG}).code == 201
    assert subjects == ["a", "b"]


def test_a_client_of_kafka_connect_works(start: Any, world: Any) -> None:
    """kafka-connect-py (a client on PyPI, which knows no tokens) creates, looks at, pauses, restarts and deletes a
    connector."""
    rest = start(rest__basic__user="ann", rest__basic__password="long-enough-for-it")
    client = pytest.importorskip("kafka_connect", reason="kafka-connect-py is not installed").KafkaConnect(
        url=rest.server.url, auth="ann:long-enough-for-it"
    )
    client.create_connector({"name": "a", "config": CONFIG})
    assert client.list_connectors() == ["a"]
    assert client.get_connector_config("a")["connector.class"] == "MemorySource"
    until(lambda: client.get_connector_status("a")["connector"]["state"] == "RUNNING")
    client.pause_connector("a")
    until(lambda: client.get_connector_status("a")["connector"]["state"] == "PAUSED")
    client.resume_connector("a")
    client.restart_connector("a", include_tasks=True)
    until(lambda: client.get_connector_status("a")["connector"]["state"] == "RUNNING")
    assert {each["class"] for each in client.list_connector_plugins()} >= {"MemorySource", "MemorySink"}
    assert client.validate_connector_config("MemorySource", {**CONFIG, "name": "a"})["error_count"] == 0
    client.delete_connector("a")
    assert client.list_connectors() == []


def test_a_failure_lasts_until_a_restart_or_a_stop(world: Any) -> None:
    """A pause and a resumption leave a failed connector as it is; each step of its thread is taken here."""
    tries = world.start_error = Mock(return_value=ConfigurationError("wrong"))
    run = ConnectorRun(resolve_config({**CONFIG, "name": "a"}, Providers()).plan())
    found = []
    for wish in ("RUNNING", "PAUSED", "RUNNING", "restart", "STOPPED", "RUNNING"):
        run.restart(only_failed=True) if wish == "restart" else run.aim(RunState(wish))
        run._step()
        found.append((run.status.state, tries.call_count))
    assert found == [*[("FAILED", 1)] * 3, ("FAILED", 2), ("STOPPED", 2), ("FAILED", 3)]


class Model:
    """What is wanted of each connector."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}

    def codes(self, step: str, name: str) -> int:
        """The code of a step, which is applied."""
        is_there = name in self.targets
        if step == "create":
            self.targets.setdefault(name, "RUNNING")
            return 409 if is_there else 201
        if step == "put":
            self.targets.setdefault(name, "RUNNING")
            return 200 if is_there else 201
        if not is_there:
            return 404
        if step == "delete":
            del self.targets[name]
            return 204
        if step in AIMS:
            self.targets[name], code = AIMS[step]
            return code
        return 202 if step == "restart all" else 204


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "create": lambda rest, name: rest("POST", "/connectors", {"name": name, "config": CONFIG}),
    "put": lambda rest, name: rest("PUT", f"/connectors/{name}/config", CONFIG),
    "restart": lambda rest, name: rest("POST", f"/connectors/{name}/restart"),
    "restart all": lambda rest, name: rest("POST", f"/connectors/{name}/restart?includeTasks=true"),
    "delete": lambda rest, name: rest("DELETE", f"/connectors/{name}"),
    **{step: lambda rest, name, step=step: rest("PUT", f"/connectors/{name}/{step}") for step in AIMS},
}
STEPS = st.lists(st.tuples(st.sampled_from([*CALLS, "write", "rest"]), st.sampled_from("ab")), min_size=3, max_size=14)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_states_follow_what_was_asked(rest: Any, world: Any, steps: list[tuple[str, str]]) -> None:
    """After any steps in any order each code is the model's, every connector comes to the state that was wanted last,
    its tasks with it, and while one runs all rows are read, each once."""
    for name in rest.worker.names():
        assert rest("DELETE", f"/connectors/{name}").code == 204
    model = Model()
    for step, name in steps:
        if step == "write":
            for log in world.logs:
                log.end_offset += 3
        elif step == "rest":
            until(lambda: settled(rest, model))
        else:
            assert CALLS[step](rest, name).code == model.codes(step, name), (step, name)
    until(lambda: settled(rest, model), timeout_s=30)
    assert rest("GET", "/connectors").body == sorted(model.targets)
    read = offsets(world)
    if "RUNNING" in model.targets.values():
        whole = sorted(offset for log in world.logs for offset in range(log.end_offset))
        until(lambda: sorted(offsets(world)) == whole, timeout_s=30)
    assert len(read) <= sum(log.end_offset for log in world.logs)


def offsets(world: Any) -> list[int]:
    """What was read."""
    tables = list(world.tables.rows.get("state_records", []))
    return [offset for rows in tables for offset in rows["offset"].to_pylist()]


def settled(rest: Any, model: Model) -> bool:
    """Every connector and its tasks are in the state that is wanted."""
    for name, target in model.targets.items():
        status = rest("GET", f"/connectors/{name}/status").body
        states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
        if states != {target} or (target == "STOPPED" and status["tasks"]):
            return False
    return True
