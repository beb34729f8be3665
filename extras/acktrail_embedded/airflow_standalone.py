"""A real Airflow in a folder: ``airflow standalone`` as a child process that ends with its owner."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import secrets
import socket
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final, NamedTuple, Self

from acktrail.atomic_files import write_whole
from acktrail.config import environment
from acktrail.errors import AcktrailError, ConfigurationError, MissingDependency
from acktrail_embedded.airflow_api import TAIL_LINES, AirflowApi, DagWatch, polling
from acktrail_embedded.process.guarded_process import GuardedProcess

HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 20_000
_LAST_PORT: Final = 32_767
"""Below the range from which Linux takes ports for outgoing connections: a port that is free stays free."""
_PORT_TRIES: Final = 1_000
_PASSWORDS: Final = "passwords.json"
_NEEDED: Final = ("metadatabase", "scheduler", "dag_processor")
_START_S: Final = 400.0


class AirflowNotStarted(AcktrailError):
    """Airflow did not become healthy. The last lines of its log are a note of the error."""

    def __init__(self, reason: str, *, log_path: Path) -> None:
        super().__init__(f"Airflow did not start: {reason}", hint=f"see {log_path}", data={"log_path": str(log_path)})
        with contextlib.suppress(OSError):
            lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
            self.add_note("\n".join(lines[-TAIL_LINES:]))


class AirflowStandalone:
    """Scheduler, DAG processor, API server and triggerer on loopback, SQLite and a LocalExecutor of four.

    Everything lives in `folder`: configuration, metadata, logs. Airflow
    settings of the caller's environment do not reach it; `env` does. `url`, `user` and `password` open its pages.
    New DAGs are paused, as everywhere.
    """

    def __init__(self, dags_folder: Path, *, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.log_path = self.folder / "standalone.log"
        self._dags_folder = dags_folder.resolve()
        self._env = dict(env or {})
        self._process: GuardedProcess | None = None
        self._port: int | None = None
        self.user = "admin"
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
        ).start()
        return self

    def wait_until_healthy(self) -> Self:
        """Ask until metadata, scheduler and DAG processor are healthy. Raises AirflowNotStarted."""
        api, before = self.api(), dict[int, str]()
        for _ in polling(_START_S):
            health = api.health()
            missing = [name for name in _NEEDED if health.get(name) != "healthy"]
            if not missing:
                return self
            if self._process is None or self._process.poll() is not None:
                raise AirflowNotStarted("it ended", log_path=self.log_path)
            ended = _ended_children(self._process.pid)
            for name in (ended[pid] for pid in ended.keys() & before.keys()):
                raise AirflowNotStarted(f"its process {name!r} ended", log_path=self.log_path)
            before = ended
        raise AirflowNotStarted(f"{', '.join(missing)} not healthy after {_START_S:.0f} s", log_path=self.log_path)

    def stop(self) -> None:
        """End it and everything it started."""
        if self._process is not None:
            self._process.stop()

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


def _ended_children(pid: int | None) -> dict[int, str]:
    """Children that ended and that their parent did not ask about, by pid with their names. ``airflow standalone`` does
    not end with one of its processes: it waits for the others."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # over
            head, _, tail = (process / "stat").read_text("utf-8", "replace").rpartition(")")
            state, parent = tail.split()[:2]
            if state == "Z" and int(parent) == pid:
                found[int(process.name)] = head.partition("(")[2]
    return found


class AirflowPorts(NamedTuple):
    """Where the API server and the two log servers listen."""

    api: int
    worker_logs: int
    trigger_logs: int


def free_ports() -> AirflowPorts:
    """Three free ports. Raises ConfigurationError when there are none."""
    chosen = random.SystemRandom()
    found: set[int] = set()
    for _ in range(_PORT_TRIES):
        port = chosen.randint(_FIRST_PORT, _LAST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            found.add(port)
        if len(found) == 3:
            return AirflowPorts(*found)
    raise ConfigurationError(
        f"no free ports from {_FIRST_PORT} to {_LAST_PORT}", hint="stop the programs that listen there"
    )


def write_settings(folder: Path, *, dags_folder: Path, ports: AirflowPorts, passwords: Mapping[str, str]) -> None:
    """Write ``airflow.cfg`` and the passwords of its administrators to `folder`, readable by this user only."""
    own = {
        "folder": str(folder),
        "dags_folder": str(dags_folder),
        "passwords_file": str(folder / _PASSWORDS),
        "users": ",".join(f"{user}:admin" for user in passwords),
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "secret_key": secrets.token_urlsafe(32),
        "jwt_secret": secrets.token_urlsafe(48),
    }
    values = {name: value.replace("%", "%%") for name, value in own.items()} | ports._asdict()
    template = Template(files("acktrail_embedded").joinpath("airflow-standalone.cfg").read_text("utf-8"))
    config = template.substitute(values, host=HOST, url=f"http://{HOST}:{ports.api}")
    write_whole(config, folder / "airflow.cfg", mode=0o600)
    write_whole(json.dumps(dict(passwords)), folder / _PASSWORDS, mode=0o600)
