"""What a person does on Airflow's pages: trigger a run, answer its approval, read what a task returned."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

from acktrail.embedded.airflow_standalone import HOST, AirflowApi, AirflowRefused, AirflowStandalone


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
            if of["task_instance"]["state"] == "awaiting_input"
        )

    def answer(self, approval: Approval, option: str) -> None:
        """Answer for the user: ``Approve`` or ``Reject``."""
        path = f"{self.run_path(approval.dag_id, approval.run_id)}/taskInstances/{approval.task_id}/-1/hitlDetails"
        self.send("PATCH", path, {"chosen_options": [option], "params_input": {}}, tries=1)

    def returned(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task of a run returned, or pushed under `key`."""
        path = f"{self.run_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}?deserialize=true"
        return self.send("GET", path)["value"]
