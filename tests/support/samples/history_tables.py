"""The history of a few exports, built without Spark."""

from __future__ import annotations

from acktrail.tables.delta.store import Tables
from acktrail_jobs.frames import in_process
from acktrail_jobs.history.history_run import build_history

__all__ = ["build"]


def build(tables: Tables) -> None:
    """Bring the history of `tables` up to date in this process."""
    build_history(tables.config, in_process())
