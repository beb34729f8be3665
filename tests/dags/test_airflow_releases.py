"""What acktrail does beside an older release of Airflow. `make test-lowest` runs the oldest one itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from drivers.airflow_home import DAGS_FOLDER, Late
from drivers.own_process import finished

pytestmark = pytest.mark.airflow

plugin, links = Late("acktrail_dags.dashboard_plugin"), Late("acktrail_dags.links")
BESIDE = """
import importlib.metadata as metadata, runpy, sys
real = metadata.version
metadata.version = lambda name: "{release}" if name == "apache-airflow-core" else real(name)
sys.path.insert(0, {folder!r})
runpy.run_path({file!r})
"""


@pytest.mark.parametrize("file", ["acktrail_export.py", "acktrail_branches.py"])
def test_dag_files_name_the_release_that_they_need(file: str, airflow_home: Path) -> None:
    """Beside Airflow 3.0 a file is not imported, and the last line, which Airflow shows, says what to do."""
    code = BESIDE.format(release="3.0.6", folder=str(DAGS_FOLDER), file=str(DAGS_FOLDER / file))
    done = finished(sys.executable, "-c", code)

    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("acktrail's DAGs need Airflow 3.1 or later, and this is Airflow 3.0.6: upgrade it")
    )


@pytest.mark.parametrize(("release", "is_shown"), [("3.1.0", False), ("3.1.7rc1", False), ("3.1.8", True), ("", True)])
def test_pages_are_only_shown_where_airflow_can_guard_them(
    release: str, is_shown: bool, airflow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.1.8 Airflow's guard takes the DAG from the address, which the caller writes: the plugin then has neither
    pages nor menu, and messages have no links to them."""
    import acktrail_dags

    monkeypatch.setattr(acktrail_dags, "_release", lambda: release)
    found: Any = plugin.AcktrailPlugin()

    assert bool(found.external_views) == bool(found.fastapi_apps) == is_shown
    assert (links.dashboard_address() is not None) == is_shown
