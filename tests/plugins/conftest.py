"""Servers of other tests that those of the branch use."""

from __future__ import annotations

from broker.conftest import guarded, guarded_workload, workload
from jobs.conftest import spark
from tables.conftest import object_storage

__all__ = ["guarded", "guarded_workload", "object_storage", "spark", "workload"]
