"""Where acktrail's DAG files are, for Airflow's ``dags_folder``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from acktrail.errors import MissingDependency

_IN_WHEEL: Final = "dag_files"


def dags_folder() -> Path:
    """``acktrail_dags/dag_files`` of an installed wheel, or ``dags/`` of a checkout. Nothing is imported.

    Raises:
        MissingDependency: neither is there.
    """
    package = find_spec("acktrail_dags")
    if package is None or package.origin is None:
        raise MissingDependency("acktrail's DAGs are not installed", hint="install the wheel of acktrail again")
    folder = Path(package.origin).parent
    return folder / _IN_WHEEL if (folder / _IN_WHEEL).is_dir() else folder.parent
