"""The worked examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE_ROOTS: Final = ("connectors", "spark_jobs", "expectations", "dashboards", "simulation")
MODULES: Final = sorted(
    ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
    for root in SOURCE_ROOTS
    for file in (ROOT / root).rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


def test_there_are_examples() -> None:
    """The readable replay's combiner and its counterpart on columns have one each."""
    assert {"acktrail.model.batches", "acktrail.replay.combine_batches"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Each example prints what it shows."""
    results = doctest.testmod(import_module(name))
    assert results.attempted
    assert not results.failed
