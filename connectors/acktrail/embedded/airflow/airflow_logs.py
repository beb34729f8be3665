"""What a task's log says about its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["TaskLog", "task_log"]

_TAIL_LINES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """The end of one try's log. `reason`: the error that ended it, one line; empty when the log has none."""

    path: Path
    tail: tuple[str, ...]
    reason: str


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
