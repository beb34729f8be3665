"""Where acktrail's DAG files are, and the configuration of an embedded Airflow: everything on loopback, secrets of its
own, nothing shared."""

from __future__ import annotations

import base64
import configparser
import contextlib
import json
import os
import random
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from acktrail.errors import ConfigurationError, MissingDependency

HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 20_000
_LAST_PORT: Final = 32_767
"""Below the range from which Linux takes ports for outgoing connections: a port that is free stays free."""
_TRIES: Final = 1_000
_PARALLELISM: Final = 4
_PASSWORDS: Final = "passwords.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowPorts:
    """Where the API server and the two log servers listen."""

    api: int
    worker_logs: int
    trigger_logs: int


def dags_folder() -> Path:
    """For Airflow's ``dags_folder``: ``acktrail_dags/dag_files`` of an installed wheel, or ``dags/`` of a checkout.

    Nothing is imported. Raises MissingDependency when neither is there.
    """
    package = find_spec("acktrail_dags")
    if package is None or package.origin is None:
        raise MissingDependency("acktrail's DAGs are not installed", hint="install the wheel of acktrail again")
    folder = Path(package.origin).parent
    return folder / "dag_files" if (folder / "dag_files").is_dir() else folder.parent


def free_ports() -> AirflowPorts:
    """Three free ports. Raises ConfigurationError when there are none."""
    chosen = random.SystemRandom()
    found: set[int] = set()
    for _ in range(_TRIES):
        port = chosen.randint(_FIRST_PORT, _LAST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            found.add(port)
        if len(found) == 3:
            api, worker_logs, trigger_logs = found
            return AirflowPorts(api=api, worker_logs=worker_logs, trigger_logs=trigger_logs)
    raise ConfigurationError(f"no free ports from {_FIRST_PORT} to {_LAST_PORT}", hint="end what listens there")


def write_settings(folder: Path, *, dags_folder: Path, ports: AirflowPorts, passwords: Mapping[str, str]) -> None:
    """Write ``airflow.cfg`` and the passwords of its administrators to `folder`, readable by this user only."""
    parser = configparser.ConfigParser(interpolation=None)
    for section, values in _settings(folder, dags_folder, ports, tuple(passwords)).items():
        parser[section] = {name: value.replace("%", "%%") for name, value in values.items()}
    with _private(folder / "airflow.cfg") as file:
        parser.write(file)
    with _private(folder / _PASSWORDS) as file:
        json.dump(dict(passwords), file)


def _settings(
    folder: Path, dags_folder: Path, ports: AirflowPorts, users: tuple[str, ...]
) -> dict[str, dict[str, str]]:
    url = f"http://{HOST}:{ports.api}"
    return {
        "core": {
            "dags_folder": str(dags_folder),
            "plugins_folder": str(folder / "plugins"),
            "load_examples": "False",
            "executor": "LocalExecutor",
            "parallelism": str(_PARALLELISM),
            "mp_start_method": "fork",
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "execution_api_server_url": f"{url}/execution/",
            "simple_auth_manager_users": ",".join(f"{user}:admin" for user in users),
            "simple_auth_manager_passwords_file": str(folder / _PASSWORDS),
        },
        "database": {"sql_alchemy_conn": f"sqlite:///{folder / 'airflow.db'}"},
        "logging": {
            "base_log_folder": str(folder / "logs"),
            "dag_processor_child_process_log_directory": str(folder / "logs" / "dag_processor"),
            "worker_log_server_port": str(ports.worker_logs),
            "trigger_log_server_port": str(ports.trigger_logs),
        },
        "api": {"host": HOST, "port": str(ports.api), "base_url": url, "secret_key": secrets.token_urlsafe(32)},
        "api_auth": {"jwt_secret": secrets.token_urlsafe(48)},
        "scheduler": {"scheduler_idle_sleep_time": "0.5", "enable_health_check": "False"},
        "dag_processor": {"parsing_processes": "1"},
    }


@contextlib.contextmanager
def _private(path: Path) -> Iterator[IO[str]]:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        yield file
