"""A plan as the commands take it: by file, or by id from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acktrail.config import TablesConfig

__all__ = ["loaded_plan"]


def loaded_plan(plan: str, target: TablesConfig | None) -> dict[str, Any]:
    """The plan in the file `plan`, else the stored one with that id.

    Raises:
        UnknownName, MalformedFile, PlanStale: there is none, or it was altered.
    """
    from acktrail.reset import steps

    file = Path(plan)
    if file.exists() or plan.endswith(".json") or target is None:
        return steps.read_plan_file(file)
    return steps.load_plan(target, plan)
