"""Share-group state on the shared broker."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from servers.workload import Worked, Workload

from acktrail.config import KafkaConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin


@pytest.fixture(scope="session")
def workload(broker: EmbeddedBroker) -> Workload:
    return Workload(broker.config())


@pytest.fixture(scope="session")
def worked(workload: Workload) -> Worked:
    """State that nothing touches any more."""
    name = f"broker-{uuid4().hex[:8]}"
    worked = Worked(group=f"{name}-ü:😀", topic=f"{name}-orders", partitions=2, produced=40, accepted=25)
    workload.create_topic(worked.topic, worked.partitions)
    workload.produce(worked.topic, worked.produced)
    workload.acknowledge(worked.group, worked.topic, worked.accepted)
    return worked


@pytest.fixture
def admin(kafka: KafkaConfig) -> Iterator[ShareGroupAdmin]:
    with ShareGroupAdmin(kafka) as asked:
        yield asked


@pytest.fixture(scope="session")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with logins and ACLs: `admin` may do everything, the others nothing until it is granted."""
    users = {
        "admin": "admin-secret",
        "reader": "reader-secret",
        "exporter": "exporter-secret",
        "resetter": "resetter-secret",
        "deleter": "deleter-secret",
        "half-sighted": "half-sighted-secret",
        "member": "member-secret",
        "fewest": "fewest-secret",
        "sinker": "sinker-secret",
        "unwelcome": "unwelcome-secret",
    }
    with EmbeddedBroker(sasl_users=users) as broker:
        yield broker


@pytest.fixture(scope="session")
def guarded_workload(guarded: EmbeddedBroker) -> Workload:
    """State that the guarded broker keeps: group g accepted all of topic orders."""
    workload = Workload(guarded.config())
    workload.create_topic("orders")
    workload.produce("orders", 5)
    workload.acknowledge("g", "orders", 5)
    return workload
