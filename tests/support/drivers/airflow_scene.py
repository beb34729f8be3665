"""An Airflow with a broker, as tests of runs by the real scheduler use them; what a person does on Airflow's pages, and
the dashboard in their frame."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from drivers.browser import Page

from acktrail.change.audit.journal import read_audit
from acktrail.config import TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_embedded.airflow_api import AirflowApi, AirflowRefused, task_log
from acktrail_embedded.airflow_standalone import HOST, AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

FAILED = {"failed", "upstream_failed"}


def asked_until(condition: Callable[[], Any], what: str, timeout_s: float = 400) -> Any:
    """Ask every two seconds, and no more often: the answers come from the process that the tasks wait for, too."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(2)
    raise AssertionError(f"{what} took longer than {timeout_s:g} s")


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

    def start(self, dag_id: str, **conf: Any) -> str:
        return self.api.trigger(dag_id, conf)

    def approval(self, run_id: str) -> Approval:
        """What the run asks a person."""
        return asked_until(lambda: self.asked(run_id), run_id)

    def asked(self, run_id: str) -> Approval | None:
        """What the run asks a person, once the scheduler saw the task wait: to Airflow 3.3 an answer that comes before
        is a failure of the task."""
        found = next((approval for approval in self.api.approvals() if approval.run_id == run_id), None)
        if found is None:
            return None
        seen = (self.logs.parent / "standalone.log").read_text(errors="replace").splitlines()
        marks = ("Received executor event with state success", "task_id='approve'", run_id)
        return found if any(all(mark in line for mark in marks) for line in seen) else None

    def answer(self, approval: Approval, option: str) -> None:
        self.api.answer(approval, option)

    def is_over(self, dag_id: str, run_id: str) -> bool:
        """Whether the run ended."""
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


_FRAME = "document.querySelector('iframe').contentDocument"


class AirflowPages:
    """One tab of a browser at one Airflow, as one user."""

    def __init__(self, page: Page, url: str, token: str) -> None:
        self.page, self.url, self._token = page, url, token

    def open(self, path: str) -> None:
        """Go to a page of Airflow as the user."""
        self.page.open("about:blank")
        self.page.until("location.href === 'about:blank'")
        self.page.open(f"{self.url}/{path}", _token=self._token)

    def frame_has(self, text: str) -> None:
        """Wait until the dashboard shows a text."""
        self.page.until(f"{_FRAME}?.body?.innerText?.includes({json.dumps(text)})".replace("iframe')", "iframe')?", 1))

    def frame_is_at(self, part: str) -> None:
        """Wait until the dashboard has loaded a page whose address has `part`."""
        document = _FRAME.replace("iframe')", "iframe')?")
        at = f"{document}?.location?.href?.includes({json.dumps(part)})"
        self.page.until(f"{at} && {_FRAME}.readyState === 'complete' && {_FRAME}.querySelector('main') !== null")

    def press_in_frame(self, selector: str) -> None:
        """Follow a link of the dashboard."""
        self.page.value(f"{_FRAME}.querySelector({json.dumps(selector)}).click()")

    def frame_value(self, script: str) -> object:
        """What a script over the dashboard's document `d` comes to."""
        return self.page.value(f"(d => {script})({_FRAME})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A task that waits for a person. `body` is what they read, in Markdown."""

    dag_id: str
    run_id: str
    task_id: str
    subject: str
    body: str


class AirflowReviewer(AirflowApi):
    """The administrator."""

    @classmethod
    def of(cls, airflow: AirflowStandalone) -> Self:
        return cls(HOST, airflow.port, user=airflow.user, password=airflow.password)

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        """Ask for a run; its run id. Raises AirflowRefused with 400 when `conf` breaks a parameter's schema.

        The run is named here: asked again after an error of Airflow's database, it is the same run.
        """
        run_id = f"manual__{dt.datetime.now(dt.UTC).isoformat()}-{uuid.uuid4().hex[:8]}"
        body = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": run_id}
        try:
            self.send("POST", f"/api/v2/dags/{quote(dag_id)}/dagRuns", body)
        except AirflowRefused as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
        return run_id

    def approvals(self) -> tuple[Approval, ...]:
        """What waits for a person now. (A request is there a moment before its task waits; an answer in that moment is
        lost with the try that it was given to.)"""
        answer = self.send("GET", "/api/v2/dags/~/dagRuns/~/hitlDetails?response_received=false")
        return tuple(
            Approval(
                dag_id=of["task_instance"]["dag_id"],
                run_id=of["task_instance"]["dag_run_id"],
                task_id=of["task_instance"]["task_id"],
                subject=of["subject"],
                body=of["body"] or "",
            )
            for of in answer["hitl_details"]
            if of["task_instance"]["state"] in {"awaiting_input", "deferred"}  # deferred: before Airflow 3.3
        )

    def answer(self, approval: Approval, option: str) -> None:
        """Answer for the user: ``Approve`` or ``Reject``."""
        path = f"{self.run_path(approval.dag_id, approval.run_id)}/taskInstances/{approval.task_id}/-1/hitlDetails"
        self.send("PATCH", path, {"chosen_options": [option], "params_input": {}}, tries=1)

    def returned(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task of a run returned, or pushed under `key`."""
        path = f"{self.run_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}?deserialize=true"
        return self.send("GET", path)["value"]
