"""Tables that are validated already, and an engine for validations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from expectations.sample_tables import RUN, fill, plain_outcomes, validate

from acktrail.config import TablesConfig
from acktrail_expectations import evaluation


@pytest.fixture
def plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Great Expectations', which takes a second for the suites of a run; ``test_damage`` holds one to the
    other."""
    monkeypatch.setattr(evaluation, "_outcomes", plain_outcomes)


@pytest.fixture(scope="session")
def validated_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with everyday life, after the validation of their only run."""
    folder = tmp_path_factory.mktemp("validated") / "tables"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "_outcomes", plain_outcomes)
        validate(fill(folder), RUN)
    return folder


@pytest.fixture
def config(validated_once: Path, tmp_path: Path) -> TablesConfig:
    """A test's own copy of tables that are validated already."""
    shutil.copytree(validated_once, tmp_path / "tables")
    return TablesConfig(uri=str(tmp_path / "tables"))
