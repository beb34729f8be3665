"""Puts the DAG files beside the package that they share, so that a wheel brings a whole DAG folder, the runbooks beside
the dashboard, which shows them, and units, alert rules and boards where `acktrail config files` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGES: Final = {"docs/reference/runbooks.md": "acktrail_dashboard"}
_DEPLOYED: Final = ("deploy/services", "dashboards/prometheus", "dashboards/grafana")


class DagFilesInWheel(BuildHookInterface):  # type: ignore[type-arg]
    """An editable installation keeps its DAG folder, ``dags/`` of the checkout, and reads ``docs/``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            for file in Path(self.root, "dags").glob("*.py"):
                build_data["force_include"][str(file)] = f"acktrail_dags/dag_files/{file.name}"
            for page, folder in _PAGES.items():
                build_data["force_include"][str(Path(self.root, page))] = f"{folder}/{Path(page).name}"
            for folder in _DEPLOYED:
                build_data["force_include"][str(Path(self.root, folder))] = f"acktrail/deployment/{folder}"
