"""The worked examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "acktrail.columnar.decoding.decode_records",
    "acktrail.columnar.replaying.combine_batches",
    "acktrail.columnar.replaying.fold",
    "acktrail.columnar.replaying.interval_cover",
    "acktrail.columnar.replaying.raw_log",
    "acktrail.columnar.schemas.table_fields",
    "acktrail.columnar.sorting",
    "acktrail.model.batches",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Each of these modules has an example, and it prints what it says."""
    results = doctest.testmod(import_module(name))
    assert results.attempted
    assert not results.failed
