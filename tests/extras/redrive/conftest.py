"""One group with archived records for all tests of redrives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from extras.redrive.poisoned import Poisoned

from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="session")
def _poisoned(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Poisoned:
    world = Poisoned.at(broker.config(), tmp_path_factory.mktemp("redrive"))
    world.begin()
    return world


@pytest.fixture
def poisoned(_poisoned: Poisoned, capsys: pytest.CaptureFixture[str]) -> Iterator[Poisoned]:
    if not Path(_poisoned.tables.uri).exists():
        _poisoned.export(capsys)
    return _poisoned
