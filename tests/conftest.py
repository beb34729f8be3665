"""What every test may use. Real servers are started once a run, at free ports, and end with the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from acktrail.config import KafkaConfig
from acktrail.embedded.broker import EmbeddedBroker

_LEFT_ALONE = {
    "share.coordinator.state.topic.prune.interval.ms": "86400000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "86400000",
}

settings.register_profile("quick", max_examples=60, derandomize=True, deadline=None)
settings.register_profile("exhaustive", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_LONGEST_FIRST = ("airflow", "slow", "spark", "broker")
"""Markers of modules, by how long they take: what is begun last should end soon, so both processes end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules in the order of their heaviest test; tests of a module stay together and in their order."""
    ranks: dict[Path, int] = {}
    for item in items:
        rank = min((index for index, name in enumerate(_LONGEST_FIRST) if item.get_closest_marker(name)), default=9)
        ranks[item.path] = min(ranks.get(item.path, rank), rank)
    items.sort(key=lambda item: ranks[item.path])


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """A real Kafka broker of the default release, shared by the run: use topic and group names of your own.

    It writes no snapshot and prunes nothing of its own accord, however long the run takes.
    """
    with EmbeddedBroker(properties=_LEFT_ALONE) as running:
        yield running


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> KafkaConfig:
    """How to reach the shared broker."""
    return KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
