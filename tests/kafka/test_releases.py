"""Older and newer brokers are asked in the versions that they serve."""

from __future__ import annotations

import pytest
from servers.workload import Workload

from acktrail.embedded import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset, Outcome

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.full
def test_a_broker_that_knows_no_lag_leaves_it_unknown() -> None:
    """Kafka 4.1 describes start offsets without lag: it is None, never a number."""
    with EmbeddedBroker("4.1.2") as broker:
        workload = Workload(broker.config())
        workload.create_topic("orders")
        workload.produce("orders", 10)
        workload.acknowledge("g", "orders", 10)
        with ShareGroupAdmin(broker.config()) as admin:
            found = admin.capabilities()
            (offset,) = admin.describe_offsets("g")
            (lost,) = admin.alter_offsets("g", [NewStartOffset(topic="orders", partition=0, start_offset=3)])
    assert (found.release, found.describes_share_groups, found.reports_lag) == ("4.1", True, False)
    assert offset.start_offset is not None
    assert offset.lag is None
    assert not found.resets_share_groups
    assert lost.outcome is Outcome.NOT_ATTEMPTED, "a reset that does nothing is no success"
