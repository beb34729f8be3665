"""Parameters, tasks and order of the shipped DAGs. Nothing here loads a Kafka client, Arrow, Spark or Great
Expectations.

Raises ConfigurationError when it is imported beside an Airflow that is too old for all of it; Airflow shows that as the
import error of each DAG file.
"""

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from acktrail.errors import ConfigurationError

_FOR_DAGS: Final = (3, 1)
"""The first release with tasks that wait for a person (`HITLOperator`)."""
_FOR_PAGES: Final = (3, 1, 8)
"""The first release whose guard of pages takes the id of a DAG: in an older one, any login would see all pages."""


def _release() -> str:
    """The Airflow that is installed here, for example ``3.1.0``; empty where none is, or Airflow 2."""
    try:
        return version("apache-airflow-core")
    except PackageNotFoundError:
        return ""


def _is_before(first: tuple[int, ...]) -> bool:
    return bool(_release()) and tuple(map(int, re.findall(r"\d+", _release())))[: len(first)] < first


def airflow_has_pages() -> bool:
    """Whether the pages can be shown within Airflow, each to those who may read its DAG."""
    return not _is_before(_FOR_PAGES)


if _is_before(_FOR_DAGS):
    raise ConfigurationError(f"acktrail's DAGs need Airflow 3.1 or later, and this is Airflow {_release()}: upgrade it")
