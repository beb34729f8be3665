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

_LONGEST_FIRST = ("airflow", "spark", "slow", "broker")
"""Markers of modules, by how long all of them take: what is begun last should end soon."""
_ONE_PROCESS = frozenset({"airflow", "spark"})
"""All modules with this marker run in one process: one Spark session serves them, and two Airflows at once would starve
each other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules in the order of their heaviest marker; tests of a module stay in one process and in their order."""
    marks: dict[Path, str] = {}
    for name in _LONGEST_FIRST:
        for item in items:
            if item.get_closest_marker(name):
                marks.setdefault(item.path, name)
    for item in items:
        mark = marks.get(item.path, "")
        item.add_marker(pytest.mark.xdist_group(mark if mark in _ONE_PROCESS else str(item.path)))
    ranks = {name: rank for rank, name in enumerate((*_LONGEST_FIRST, ""))}
    items.sort(key=lambda item: ranks[marks.get(item.path, "")])


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
