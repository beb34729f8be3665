"""Which releases of Kafka the tests of a module run on."""

from __future__ import annotations

from typing import Any

import pytest


def releases(always: str, *others: str) -> list[Any]:
    """Parameters of a fixture or a test: `always` in every run, `others` in a run of all tests (``make test-all``)."""
    return [always, *(pytest.param(version, marks=pytest.mark.full) for version in others)]
