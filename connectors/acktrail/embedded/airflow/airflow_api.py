"""A small client of Airflow's REST interface: connections, pausing, runs, tasks, asset events."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote, urlencode

from acktrail.errors import AcktrailError

_TIMEOUT_S: Final = 30.0
_ASK_S: Final = 0.5
_TRIES: Final = 5


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
        return {name: str(of.get("status")) for name, of in json.loads(text).items() if isinstance(of, dict)}

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

    def first_run(self, dag_id: str) -> DagRun | None:
        """The oldest run of a DAG; None: it was not run yet."""
        runs = self.send("GET", f"/api/v2/dags/{quote(dag_id)}/dagRuns?order_by=id&limit=1")["dag_runs"]
        return self.run(dag_id, runs[0]["dag_run_id"]) if runs else None

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """One run as it is now."""
        return DagRun(dag_id=dag_id, run_id=run_id, state=self.send("GET", self.run_path(dag_id, run_id))["state"])

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
        self, method: str, path: str, body: object = None, *, token: bool = True, tries: int = _TRIES
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
        return dict(json.loads(text))

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
