"""Waits for an embedded Airflow: for a DAG to be parsed, a run to begin, a task or a run to succeed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from acktrail.embedded.airflow.airflow_api import AirflowApi, AirflowRefused, DagRun, TaskRun
from acktrail.errors import AcktrailError

_ASK_S: Final = 0.5
_TAIL_LINES: Final = 30
_FAILED: Final = ("failed", "upstream_failed")

Progress = Callable[[TaskRun], None]


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
        for _ in _polling(timeout_s):
            if self._api.has_dag(dag_id):
                return
            for file, reason in self._api.import_errors().items():
                if dag_id in file:
                    raise AirflowRefused(file, HTTPStatus.NOT_FOUND, reason)
        raise AirflowRefused(f"DAG {dag_id}", HTTPStatus.NOT_FOUND, f"not there after {timeout_s:.0f} s")

    def wait_for_a_run(self, dag_id: str, *, timeout_s: float) -> DagRun:
        """The first run of a DAG, scheduled or triggered. Raises DagRunFailed when none begins."""
        for _ in _polling(timeout_s):
            if found := self._api.first_run(dag_id):
                return found
        raise DagRunFailed(dag_id, "", f"was not run within {timeout_s:.0f} s")

    def wait_for_run(
        self, run: DagRun, *, timeout_s: float, task_id: str | None = None, progress: Progress = lambda _task: None
    ) -> None:
        """Wait until a run, or its task `task_id`, succeeds; `progress` is called with every task whose state changed.

        Raises DagRunFailed: it failed (which task, why, the end of its log), or has not ended after `timeout_s`.
        """
        seen: dict[str, TaskRun] = {}
        for _ in _polling(timeout_s):
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


def _polling(timeout_s: float) -> Iterator[None]:
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
    tail = tuple(" ".join(filter(None, line)) for line in lines[-_TAIL_LINES:])
    return TaskLog(path=path, tail=tail, reason=next((reason for _, reason in reversed(lines) if reason), ""))


def _text_and_reason(line: str) -> tuple[str, str]:
    """The text of a log entry, and of the exception in it, if it has one."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        found = None
    entry: dict[str, Any] = found if isinstance(found, dict) else {"event": line}
    first, *_ = entry.get("error_detail") or [None]
    reason = " ".join(str(first.get("exc_value", "")).split()) if isinstance(first, dict) else ""
    return f"{entry.get('level', ''):8}{entry.get('event', '')}", reason
