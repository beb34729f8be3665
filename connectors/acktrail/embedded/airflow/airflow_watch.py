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
            if found := self._api.runs(dag_id):
                return found[0]
        raise DagRunFailed(dag_id, "", f"was not run within {timeout_s:.0f} s")

    def wait_for_task(
        self, run: DagRun, task_id: str, *, timeout_s: float, progress: Progress = lambda _task: None
    ) -> None:
        """Wait until a task of a run succeeds. Raises DagRunFailed as `wait_for_run` does."""
        self._wait(run, timeout_s, progress, lambda _run, tasks: tasks[task_id].state == "success")

    def wait_for_run(self, run: DagRun, *, timeout_s: float, progress: Progress = lambda _task: None) -> None:
        """Wait until a run succeeds; `progress` is called with every task whose state changed.

        Raises:
            DagRunFailed: it failed (which task, why, the end of its log), or has not ended after `timeout_s`.
        """
        self._wait(run, timeout_s, progress, lambda now, _tasks: now.state == "success")

    def _wait(
        self,
        run: DagRun,
        timeout_s: float,
        progress: Progress,
        is_done: Callable[[DagRun, Mapping[str, TaskRun]], bool],
    ) -> None:
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
            if is_done(now, tasks):
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
        entries = [_entry(line) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        entries = []
    reasons = [reason for entry in entries if (reason := _reason(entry))]
    tail = tuple(" ".join(filter(None, (_text(entry), _reason(entry)))) for entry in entries[-_TAIL_LINES:])
    return TaskLog(path=path, tail=tail, reason=reasons[-1] if reasons else "")


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"event": line}


def _text(entry: dict[str, Any]) -> str:
    return f"{entry.get('level', ''):8}{entry.get('event', '')}"


def _reason(entry: dict[str, Any]) -> str:
    """The text of the exception in a log entry, if it has one."""
    detail = entry.get("error_detail") or []
    if not detail or not isinstance(detail[0], dict):
        return ""
    return " ".join(str(detail[0].get("exc_value", "")).split())
