"""An empty world for every test of the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.world import World


@pytest.fixture(autouse=True)
def _in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that does not ask for Spark uses none, whichever test was before it."""
    if "spark" not in request.fixturenames:
        monkeypatch.setenv("ACKTRAIL_SPARK_MASTER", "in-process")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "tables")
