"""Share-group state on the shared broker."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from servers.workload import Worked, Workload

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin


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
