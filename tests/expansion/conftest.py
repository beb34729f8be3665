"""Servers of other tests that those of the branch use."""

from __future__ import annotations

from broker.conftest import guarded, guarded_workload
from jobs.conftest import spark

__all__ = ["guarded", "guarded_workload", "spark"]
