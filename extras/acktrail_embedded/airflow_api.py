"""A small client of Airflow's REST interface, with waits for a parsed DAG, the begin of a run, a success; and the end
of a task's log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from acktrail.errors import AcktrailError
from acktrail.text_parsing import parse_json

_TIMEOUT_S: Final = 30.0
_ASK_S: Final = 0.5
TRIES: Final = 5
TAIL_LINES: Final = 30
_FAILED: Final = ("failed", "upstream_failed")


class AirflowRefused(AcktrailError):
    """Airflow answered a request with an error; `status` is its HTTP number."""

    def __init__(self, request: str, status: int, detail: str) -> None:
        super().__init__(f"Airflow refused {request} with {status}: {detail}", data={"status": status})
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """One run of a DAG. `state` is Airflow's: queued, running, success, failed."""

    dag_id: str
    run_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One task of a run. `state` None: not scheduled yet."""

    task_id: str
    state: str | None
    try_number: int


class AirflowApi:
    """Speaks for `user` to the Airflow at `host`:`port`. Not thread-safe."""

    def __init__(self, host: str, port: int, *, user: str, password: str) -> None:
        self._host, self._port = host, port
        self._credentials = {"username": user, "password": password}
        self._token = ""

    def token(self) -> str:
        """The user's token: of this client's requests, and of a browser that carries it as the cookie ``_token``."""
        if not self._token:
            self._token = str(self.send("POST", "/auth/token", self._credentials, token=False)["access_token"])
        return self._token

    def health(self) -> dict[str, str]:
        """Component to status (``healthy`` ...); empty while nothing answers."""
        status, text = self._exchange("GET", "/api/v2/monitor/health", None, {})
        if status != HTTPStatus.OK:
            return {}
        return {name: str(of.get("status")) for name, of in parse_json(text).items() if isinstance(of, dict)}

    def add_connection(self, connection_id: str, **fields: object) -> None:
        """Create or replace a connection: `conn_type`, `host`, `port`, `login`, `password`, `extra` (JSON text)."""
        body = {"connection_id": connection_id, "conn_type": "generic", **fields}
        try:
            self.send("POST", "/api/v2/connections", body)
        except AirflowRefused as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            self.send("PATCH", f"/api/v2/connections/{quote(connection_id, safe='')}", body)

    def has_dag(self, dag_id: str) -> bool:
        """Whether Airflow has parsed the DAG."""
        try:
            self.send("GET", f"/api/v2/dags/{quote(dag_id)}")
        except AirflowRefused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def import_errors(self) -> dict[str, str]:
        """DAG files that could not be read, with the last line of why."""
        found = self.send("GET", "/api/v2/importErrors?limit=100")["import_errors"]
        return {of["filename"]: str(of["stack_trace"]).strip().splitlines()[-1] for of in found}

    def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause or unpause a DAG."""
        self.send("PATCH", f"/api/v2/dags/{quote(dag_id)}", {"is_paused": paused})

    def trigger(self, dag_id: str) -> DagRun:
        """Start a run as a person does, with the DAG's own parameters."""
        return _run_in(self.send("POST", f"/api/v2/dags/{quote(dag_id)}/dagRuns", {"logical_date": None}))

    def first_run(self, dag_id: str) -> DagRun | None:
        """The oldest run of a DAG; None: it was not run yet."""
        runs = self.send("GET", f"/api/v2/dags/{quote(dag_id)}/dagRuns?order_by=id&limit=1")["dag_runs"]
        return _run_in(runs[0]) if runs else None

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """One run as it is now."""
        return _run_in(self.send("GET", self.run_path(dag_id, run_id)))

    def tasks(self, dag_id: str, run_id: str) -> tuple[TaskRun, ...]:
        """The tasks of a run as they are now."""
        answer = self.send("GET", f"{self.run_path(dag_id, run_id)}/taskInstances")
        return tuple(
            TaskRun(task_id=of["task_id"], state=of["state"], try_number=of["try_number"])
            for of in answer["task_instances"]
        )

    def asset_events(self, dag_id: str, run_id: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The asset events of a run, oldest first: the asset's name and the extra that its task attached."""
        query = urlencode({"source_dag_id": dag_id, "source_run_id": run_id, "order_by": "timestamp"})
        answer = self.send("GET", f"/api/v2/assets/events?{query}")
        return [(event["name"], event["extra"] or {}) for event in answer["asset_events"]]

    @staticmethod
    def run_path(dag_id: str, run_id: str) -> str:
        """The path of a run in the REST interface."""
        return f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"

    def send(
        self, method: str, path: str, body: object = None, *, token: bool = True, tries: int = TRIES
    ) -> dict[str, Any]:
        """The JSON object that one request returns; sent again while Airflow is busy or silent, at most `tries` times.

        Raises AirflowRefused when Airflow answered with an error.
        """
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token()}"
        data = None if body is None else json.dumps(body).encode()
        for tries_left in reversed(range(tries)):
            status, text = self._exchange(method, path, data, headers)
            if status < HTTPStatus.INTERNAL_SERVER_ERROR or not tries_left:
                break
            time.sleep(_ASK_S)
        if status >= HTTPStatus.BAD_REQUEST:
            raise AirflowRefused(f"{method} {path}", status, text)
        return dict(parse_json(text))

    def _exchange(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, str]:
        """Status and text of one request; 503 and the reason where nothing answers."""
        connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body=data, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (HTTPException, OSError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def _run_in(answer: Mapping[str, Any]) -> DagRun:
    return DagRun(dag_id=answer["dag_id"], run_id=answer["dag_run_id"], state=answer["state"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """The end of one try's log. `reason`: the error that ended it, one line; empty when the log has none."""

    path: Path
    tail: tuple[str, ...]
    reason: str


class DagRunFailed(AcktrailError):
    """A DAG run failed, did not begin, or did not end in time. `log`: the end of the log of the task that failed."""

    def __init__(self, dag_id: str, run_id: str, reason: str, log: TaskLog | None = None) -> None:
        why = f"{reason}: {log.reason}" if log and log.reason else reason
        super().__init__(
            f"DAG {dag_id} {why}", hint=f"see {log.path}" if log else "", data={"dag_id": dag_id, "run_id": run_id}
        )
        self.log = log
        if log:
            self.add_note("\n".join(log.tail))


class DagWatch:
    """Watches the Airflow behind `api`, whose task logs are in `logs`."""

    def __init__(self, api: AirflowApi, *, logs: Path) -> None:
        self._api = api
        self._logs = logs

    def wait_for_dag(self, dag_id: str, *, timeout_s: float) -> None:
        """Wait until the DAG is parsed. Raises AirflowRefused: its file is broken (how), or it does not appear."""
        for _ in polling(timeout_s):
            if self._api.has_dag(dag_id):
                return
            for file, reason in self._api.import_errors().items():
                if dag_id in file:
                    raise AirflowRefused(file, HTTPStatus.NOT_FOUND, reason)
        raise AirflowRefused(f"DAG {dag_id}", HTTPStatus.NOT_FOUND, f"not there after {timeout_s:.0f} s")

    def wait_for_a_run(self, dag_id: str, *, timeout_s: float) -> DagRun:
        """The first run of a DAG, scheduled or triggered. Raises DagRunFailed when none begins."""
        for _ in polling(timeout_s):
            if found := self._api.first_run(dag_id):
                return found
        raise DagRunFailed(dag_id, "", f"was not run within {timeout_s:.0f} s")

    def wait_for_run(
        self,
        run: DagRun,
        *,
        timeout_s: float,
        task_id: str | None = None,
        progress: Callable[[TaskRun], None] = lambda _task: None,
    ) -> None:
        """Wait until a run, or its task `task_id`, succeeds; `progress` is called with every task whose state changed.

        Raises DagRunFailed: it failed (which task, why, the end of its log), or has not ended after `timeout_s`.
        """
        seen: dict[str, TaskRun] = {}
        for _ in polling(timeout_s):
            now = self._api.run(run.dag_id, run.run_id)
            tasks = {task.task_id: task for task in self._api.tasks(run.dag_id, run.run_id)}
            for task in tasks.values():
                if task.state and seen.get(task.task_id) != task:
                    progress(task)
            seen = tasks
            if now.state == "failed":
                raise self._failure(run, tasks)
            if (tasks[task_id] if task_id else now).state == "success":
                return
        waiting = ", ".join(f"{task.task_id} {task.state}" for task in seen.values() if task.state != "success")
        raise DagRunFailed(run.dag_id, run.run_id, f"has not ended after {timeout_s:.0f} s ({waiting})")

    def _failure(self, run: DagRun, tasks: Mapping[str, TaskRun]) -> DagRunFailed:
        failed = next((task for state in _FAILED for task in tasks.values() if task.state == state), None)
        if failed is None:
            return DagRunFailed(run.dag_id, run.run_id, "failed")
        log = task_log(self._logs, run.dag_id, run.run_id, failed.task_id, failed.try_number)
        return DagRunFailed(run.dag_id, run.run_id, f"failed in task {failed.task_id}", log)


def polling(timeout_s: float) -> Iterator[None]:
    """Yields at once, then every half second until the time is up."""
    deadline = time.monotonic() + timeout_s
    yield
    while time.monotonic() < deadline:
        time.sleep(_ASK_S)
        yield


def task_log(logs: Path, dag_id: str, run_id: str, task_id: str, try_number: int) -> TaskLog:
    """Read Airflow's log file (one JSON object a line) of one try; empty when there is none."""
    path = logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}" / f"attempt={try_number}.log"
    try:
        lines = [_text_and_reason(line) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        lines = []
    tail = tuple(" ".join(filter(None, line)) for line in lines[-TAIL_LINES:])
    return TaskLog(path=path, tail=tail, reason=next((reason for _, reason in reversed(lines) if reason), ""))


def _text_and_reason(line: str) -> tuple[str, str]:
    """The text of a log entry, and of the exception in it, if it has one."""
    try:
        found: Any = parse_json(line)
    except ValueError:
        found = None
    entry: dict[str, Any] = found if isinstance(found, dict) else {"event": line}
    first, *_ = entry.get("error_detail") or [None]
    reason = " ".join(str(first.get("exc_value", "")).split()) if isinstance(first, dict) else ""
    return f"{entry.get('level', ''):8}{entry.get('event', '')}", reason
