"""Who is told about resets: an approval that waits, a run that ended."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from airflow.sdk import Context
from airflow.sdk.bases.notifier import BaseNotifier

from acktrail.config import notifiers_factory

__all__ = ["callbacks", "notifiers"]


def notifiers() -> list[BaseNotifier]:
    """The notifiers that ``ACKTRAIL_NOTIFIERS`` names as ``module:function``; the function takes nothing and gives a
    list of Airflow notifiers (Slack, mail, Apprise ...). None: nobody is told beside Airflow's own pages.

    Raises:
        ImportError, AttributeError: the name is wrong: the DAG shows it as an import error.
    """
    named = notifiers_factory()
    if not named:
        return []
    module, _, function = named.partition(":")
    found: Any = getattr(import_module(module), function)()
    return list(found)


def callbacks() -> list[Callable[[Context], None]]:
    """The same, for the end of a run."""
    return [*notifiers()]
