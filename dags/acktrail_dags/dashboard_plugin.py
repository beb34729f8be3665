"""The dashboard within Airflow: a menu entry, a tab on DAGs, runs and tasks, and the pages behind them.

Airflow imports plugins in every one of its processes. Only its API server asks for ``fastapi_apps``, so that no other
process builds the dashboard; nothing is imported here before Airflow asks. An Airflow before 3.1.8 shows none of it.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from airflow.plugins_manager import AirflowPlugin

from acktrail_dags import airflow_has_pages
from acktrail_dags.links import PREFIX, ROUTE

_log: Final = logging.getLogger("acktrail.dags")
_ICON: Final = "acktrail/static/icon.svg"
_PLACES: Final = ("dag", "dag_run", "task_instance")
_OF_PLACE: Final = "dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"


class AcktrailPlugin(AirflowPlugin):
    """What Airflow's entry point ``airflow.plugins`` names."""

    name = "acktrail"

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow reads it, and never assigns
        """The entry in the menu, whose word is cut after eight characters, and the tabs. Links are relative: Airflow
        may be served below a path."""
        if not airflow_has_pages():
            return []
        menu = {"name": "Shares", "href": "acktrail/", "destination": "nav", "url_route": ROUTE, "icon": _ICON}
        tabs = [
            {
                "name": "Shares",
                "href": f"acktrail/airflow?{_OF_PLACE}",
                "destination": place,
                "url_route": f"{ROUTE}-{place.replace('_', '-')}",
                "icon": _ICON,
            }
            for place in _PLACES
        ]
        return [menu, *tabs]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow reads it, and never assigns
        """The pages, each guarded."""
        if not airflow_has_pages():
            _log.warning("acktrail's pages within Airflow need Airflow 3.1.8: see `acktrail dashboard serve`")
            return []
        from acktrail_dags.mounted_dashboard import mounted_dashboard

        return [{"app": mounted_dashboard(), "url_prefix": PREFIX, "name": "acktrail"}]
