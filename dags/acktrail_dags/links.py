"""Every address that acktrail's DAGs give to people: pages of the dashboard within Airflow, and of Airflow's own runs.

Airflow shows a plugin's pages in a frame, and the part of its address behind ``plugin/ROUTE`` is that of the frame.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import quote, urlsplit

from acktrail.config import dashboard_url
from acktrail.errors import ConfigurationError
from acktrail_dags import airflow_has_pages
from acktrail_dags.parameters import dag_profiles

PREFIX: Final = "/acktrail"
"""Where Airflow's API server mounts the pages. Its own are below ``/ui``, ``/auth``, ``/api/v2``, ``/execution``."""
ROUTE: Final = "acktrail"
"""The name of the menu's entry in addresses of Airflow's pages."""
_PLUGINS: Final = "airflow.plugins"
_log: Final = logging.getLogger("acktrail.dags")


def dashboard_address(profile: str | None = None) -> str | None:
    """Where the dashboard of `profile` is: at ``ACKTRAIL_DASHBOARD_URL``, else in Airflow's own pages where acktrail's
    plugin is installed, else nowhere. It ends with a slash: without it, Airflow's frame stays empty."""
    try:
        if address := dashboard_url():
            return f"{address}/"
    except ConfigurationError as error:
        _log.warning("%s", error.message)
    if not airflow_has_pages() or not any(each.value.startswith("acktrail") for each in entry_points(group=_PLUGINS)):
        return None
    return f"{_base_url()}/{pages_path(profile)}"


def pages_path(profile: str | None) -> str:
    """The dashboard of `profile` in Airflow's frame, below Airflow's own address."""
    folder = next((f"/{each.folder}" for each in dag_profiles() if each.name == profile and each.folder), "")
    return f"plugin/{ROUTE}{urlsplit(_base_url()).path}{PREFIX}{folder}/"


def run_address(dag_id: str, run_id: str) -> str:
    """Where Airflow shows a run."""
    return f"{_base_url()}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def _base_url() -> str:
    from airflow.configuration import conf

    return str(conf.get("api", "base_url", fallback="")).rstrip("/")
