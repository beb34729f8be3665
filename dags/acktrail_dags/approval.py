"""The operator that asks a person, and keeps who answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["DECISION", "KeptApproval"]

DECISION: Final = "decision"
"""The XCom key: `chosen_options`, and `responded_by_user` or None when nobody answered in time."""


class KeptApproval(ApprovalOperator):
    """Airflow's approval. A rejection skips what comes next before the task returns anything, so the answer is kept
    under ``DECISION`` before that."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        if "error" not in event:
            context["ti"].xcom_push(key=DECISION, value=_kept(event))
        return super().execute_complete(context, event)


def _kept(event: Mapping[str, Any]) -> dict[str, Any]:
    user = event["responded_by_user"]
    return {
        "chosen_options": list(event["chosen_options"]),
        "responded_by_user": None if user is None else {"id": user["id"], "name": user["name"]},
    }
