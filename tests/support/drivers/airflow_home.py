"""Airflow for the DAG tests: its own home in a temporary folder, chosen before Airflow is first imported. For the
``conftest.py`` of folders with DAG tests."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

DAGS_FOLDER = Path(__file__).resolve().parents[3] / "dags"

if "airflow" in sys.modules:
    raise RuntimeError("Airflow was imported before its home was chosen")
_HOME = Path(tempfile.mkdtemp(prefix="acktrail-airflow-tests-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
os.environ |= {
    "AIRFLOW_HOME": str(_HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS_FOLDER),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}


class Late:
    """A module that is imported when a test first uses it: Airflow takes seconds, and other processes have no use for
    it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest and mock look at every name of a test module
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


class RunningTask:
    """A task instance as tasks see it: `answers` are what other tasks returned, `noted` what it and earlier runs pushed
    under a key of their own."""

    def __init__(self, dag_id: str = "d", run_id: str = "r1", **answers: Any) -> None:
        self.dag_id, self.run_id, self.try_number = dag_id, run_id, 1
        self.answers, self.noted = answers, dict[str, list[Any]]()

    def xcom_pull(self, *, task_ids: Any, key: str = "return_value", **_: Any) -> Any:
        return self.answers.get(task_ids) if key == "return_value" else self.noted.get(key, [])[-1:]

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.noted.setdefault(key, []).append(value)


@pytest.fixture(scope="session", autouse=True)
def airflow_logging() -> None:
    """Airflow sets up logging when it is first imported: before a test captures any."""
    import airflow.settings

    airflow.settings.configure_logging()


@pytest.fixture(scope="session")
def dag_bag() -> Any:
    """The DAG folder as Airflow reads it."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=DAGS_FOLDER)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """Airflow's home with its metadata tables made."""
    from airflow.utils.db import initdb

    initdb()
    return _HOME
