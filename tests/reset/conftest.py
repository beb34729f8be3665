"""Real brokers for resets."""

from __future__ import annotations

import pytest
from reset.world import World

from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def world(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The shared broker, and tables of the module's own."""
    return World.at(broker.config(), tmp_path_factory.mktemp("reset"))
