"""A connector's states over REST, against a model of what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.workload import until

CONFIG = {"connector.class": "MemorySource", "sink.class": "MemorySink", "flush.interval.ms": "10"}
STATES = {"STARTED": "RUNNING", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
AIMS = {"pause": ("PAUSED", 202), "resume": ("STARTED", 202), "stop": ("STOPPED", 204)}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "put", "pause", "resume", "stop", "restart", "restart all", "delete", "write", "rest"]
        ),
        st.sampled_from(["a", "b"]),
    ),
    min_size=3,
    max_size=14,
)


class Model:
    """What is wanted of each connector."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}

    def codes(self, step: str, name: str) -> int:
        """The code of a step, which is applied."""
        is_there = name in self.targets
        if step == "create":
            self.targets.setdefault(name, "STARTED")
            return 409 if is_there else 201
        if step == "put":
            self.targets.setdefault(name, "STARTED")
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
    read = [row["offset"] for rows in world.tables.rows.get("state_records", []) for row in rows.to_pylist()]
    if "STARTED" in model.targets.values():
        whole = sorted(offset for log in world.logs for offset in range(log.end_offset))
        until(lambda: sorted(offsets(world)) == whole, timeout_s=30)
    assert len(read) <= sum(log.end_offset for log in world.logs)


def offsets(world: Any) -> list[int]:
    tables = list(world.tables.rows.get("state_records", []))
    return [offset for rows in tables for offset in rows["offset"].to_pylist()]


def settled(rest: Any, model: Model) -> bool:
    """Every connector and its tasks are in the state that is wanted."""
    for name, target in model.targets.items():
        status = rest("GET", f"/connectors/{name}/status").body
        states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
        if states != {STATES[target]} or (target == "STOPPED" and status["tasks"]):
            return False
    return True
