"""A real Airflow in a folder: ``airflow standalone`` as a child process that ends with its owner."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from acktrail.config import environment
from acktrail.embedded.airflow.airflow_api import AirflowApi, DagWatch
from acktrail.embedded.airflow.airflow_settings import HOST, free_ports, write_settings
from acktrail.embedded.process.guarded_process import GuardedProcess
from acktrail.errors import AcktrailError, MissingDependency

_USER: Final = "admin"
_NEEDED: Final = ("metadatabase", "scheduler", "dag_processor")
_TAIL_LINES: Final = 30
_ASK_S: Final = 0.5
_START_S: Final = 180.0


class AirflowNotStarted(AcktrailError):
    """Airflow did not become healthy. The last lines of its log are a note of the error."""

    def __init__(self, reason: str, *, log_path: Path) -> None:
        super().__init__(f"Airflow did not start: {reason}", hint=f"see {log_path}", data={"log_path": str(log_path)})
        with contextlib.suppress(OSError):
            lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
            self.add_note("\n".join(lines[-_TAIL_LINES:]))


class AirflowStandalone:
    """Scheduler, DAG processor, API server and triggerer on loopback, SQLite and a LocalExecutor of four.

    Everything lives in `folder` (default: a temporary one, removed at the end): configuration, metadata, logs. Airflow
    settings of the caller's environment do not reach it; `env` does. `url`, `user` and `password` open its pages.
    New DAGs are paused, as everywhere.
    """

    def __init__(self, dags_folder: Path, *, folder: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self._temporary = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="acktrail-airflow-"))).resolve()
        self.log_path = self.folder / "standalone.log"
        self._dags_folder = dags_folder.resolve()
        self._env = dict(env or {})
        self._process: GuardedProcess | None = None
        self._port: int | None = None
        self.user = _USER
        self.password = secrets.token_urlsafe(12)

    @property
    def url(self) -> str:
        """Where its pages and its REST interface are."""
        return f"http://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Where its API server listens, on loopback."""
        if self._port is None:
            raise RuntimeError("Airflow was not started")
        return self._port

    def api(self) -> AirflowApi:
        """A client of its REST interface, as the administrator."""
        return AirflowApi(HOST, self.port, user=self.user, password=self.password)

    def watch(self) -> DagWatch:
        """Waits for its DAGs and their runs."""
        return DagWatch(self.api(), logs=self.folder / "logs")

    def launch(self) -> Self:
        """Start it and return at once; `wait_until_healthy` waits. Raises MissingDependency without Airflow."""
        if find_spec("airflow") is None:
            raise MissingDependency("Airflow is not installed", hint="install acktrail with its extra 'airflow'")
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports()
        write_settings(self.folder, dags_folder=self._dags_folder, ports=ports, passwords={self.user: self.password})
        self._port = ports.api
        self._process = GuardedProcess(
            [sys.executable, "-m", "airflow", "standalone"],
            log_path=self.log_path,
            env=self._environment(),
            cwd=self.folder,
            remove=self.folder if self._temporary else None,
        ).start()
        return self

    def wait_until_healthy(self) -> Self:
        """Ask until metadata, scheduler and DAG processor are healthy. Raises AirflowNotStarted."""
        deadline = time.monotonic() + _START_S
        api = self.api()
        while True:
            health = api.health()
            missing = [name for name in _NEEDED if health.get(name) != "healthy"]
            if not missing:
                return self
            if self._process is None or self._process.poll() is not None:
                raise AirflowNotStarted("it ended", log_path=self.log_path)
            if time.monotonic() > deadline:
                reason = f"{', '.join(missing)} not healthy after {_START_S:.0f} s"
                raise AirflowNotStarted(reason, log_path=self.log_path)
            time.sleep(_ASK_S)

    def stop(self) -> None:
        """End it and everything it started; a temporary folder is removed."""
        if self._process is not None:
            self._process.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.launch().wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _environment(self) -> dict[str, str]:
        """Without the caller's Airflow settings; no proxy to itself; ``airflow`` on PATH is this environment's."""
        inherited = {name: value for name, value in environment().items() if not name.startswith("AIRFLOW")}
        direct = ",".join(filter(None, (inherited.get("NO_PROXY") or inherited.get("no_proxy"), HOST)))
        path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), inherited.get("PATH"))))
        own = {"AIRFLOW_HOME": str(self.folder), "PATH": path, "PYTHONUNBUFFERED": "1"}
        return {**inherited, **self._env, **own, "NO_PROXY": direct, "no_proxy": direct}
