"""An Airflow with a broker, as tests of runs by the real scheduler use them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drivers.airflow_reviewer import AirflowReviewer, Approval

from acktrail.change.audit.journal import read_audit
from acktrail.config import TablesConfig
from acktrail.embedded.airflow_standalone import task_log
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin

__all__ = ["Scene", "asked_until", "succeeded"]

FAILED = {"failed", "upstream_failed"}


def asked_until(condition: Callable[[], Any], what: str) -> Any:
    """Ask every two seconds, and no more often: the answers come from the process that the tasks wait for, too."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(2)
    raise AssertionError(f"{what} took longer than 400 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An Airflow, a broker, and the tables of the audit."""

    api: AirflowReviewer
    broker: EmbeddedBroker
    tables: TablesConfig
    logs: Path
    messages: Path
    """What notifiers were to send."""
    url: str
    tokens: tuple[str, ...]
    """Of a viewer and of a user."""
    answers: dict[str, str] = field(default_factory=dict)
    """What was answered, by run."""

    def start(self, dag_id: str, **conf: Any) -> str:
        return self.api.trigger(dag_id, conf)

    def approval(self, run_id: str) -> Approval:
        """What the run asks a person."""
        return asked_until(lambda: next((a for a in self.api.approvals() if a.run_id == run_id), None), run_id)

    def answer(self, approval: Approval, option: str) -> None:
        self.answers[approval.run_id] = option
        self.api.answer(approval, option)

    def is_over(self, dag_id: str, run_id: str) -> bool:
        """Whether the run ended. An answer that comes before the scheduler saw the task wait is lost to it: Airflow
        tries the task again and asks anew, and is answered anew."""
        for approval in self.api.approvals():
            if approval.run_id == run_id and run_id in self.answers:
                self.api.answer(approval, self.answers[run_id])
        return self.api.run(dag_id, run_id).state in {"success", "failed"}

    def ended(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """State of every task once the run ended: as a failure where one of them failed, and nowhere else."""
        asked_until(lambda: self.is_over(dag_id, run_id), run_id)
        states = {task.task_id: task.state for task in self.api.tasks(dag_id, run_id)}
        has_failed = not FAILED.isdisjoint(states.values())
        assert self.api.run(dag_id, run_id).state == ("failed" if has_failed else "success"), states
        return states

    def reason(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Why a task failed."""
        (number,) = (task.try_number for task in self.api.tasks(dag_id, run_id) if task.task_id == task_id)
        return task_log(self.logs, dag_id, run_id, task_id, number).reason

    def start_offset(self, group_id: str) -> int | None:
        with ShareGroupAdmin(self.broker.config()) as admin:
            (offset,) = admin.describe_offsets(group_id)
        return offset.start_offset

    def events(self, plan_id: str) -> list[tuple[str, str]]:
        """Who did what, from the audit of a plan."""
        return [(row.event, row.actor) for row in read_audit(self.tables, {"plan_id": plan_id})]


def succeeded(states: dict[str, str | None]) -> set[str]:
    return {task for task, state in states.items() if state == "success"}
