"""``/connectors`` as Kafka Connect has it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from broker.workload import until

CONFIG = {"connector.class": "MemorySource", "sink.class": "MemorySink", "flush.interval.ms": "10"}


def test_life_of_a_connector(rest: Any, world: Any) -> None:
    """Created, looked at, paused, resumed, stopped, its offsets changed, resumed, deleted: each code as in Connect, and
    rows continue where the offsets say."""
    world.logs[0].end_offset = 5
    made = rest("POST", "/connectors", {"name": "a", "config": {**CONFIG, "tasks.max": 2}})
    assert (made.code, made.headers["location"]) == (201, "/connectors/a")
    assert made.body["config"] == {**CONFIG, "tasks.max": "2", "name": "a"}
    until(lambda: rest("GET", "/connectors/a/status").body["connector"]["state"] == "RUNNING")
    partition = {"partition": "memory/AAAAAAAAAAAAAAAAAAAAAQ/0"}
    until(
        lambda: (
            rest("GET", "/connectors/a/offsets").body["offsets"] == [{"partition": partition, "offset": {"offset": 5}}]
        )
    )
    assert [task["id"] for task in rest("GET", "/connectors/a/tasks").body] == [
        {"connector": "a", "task": 0},
        {"connector": "a", "task": 1},
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
    read = [offset for rows in world.tables.rows["state_records"] for offset in rows["offset"].to_pylist()]
    assert read == [0, 1, 2, 3, 4, 7, 8]
    assert rest("DELETE", "/connectors/a").code == 204
    gone = rest("GET", "/connectors/a/status")
    assert (gone.code, gone.body) == (404, {"error_code": 404, "message": "Connector a not found"})


def _states(rest: Any, name: str) -> list[Any]:
    status = rest("GET", f"/connectors/{quote(name, safe='')}/status").body
    return [status["connector"], *status["tasks"]]
