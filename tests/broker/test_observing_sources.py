"""The sources that observe keep the promises of their suite on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from broker.workload import Workload

from acktrail.broker.groups.offsets_connector import ShareGroupOffsetsSource
from acktrail.broker.ledger.ledger_connector import PartitionLedgerSource
from acktrail.connect.testing import ObservationSuite
from acktrail.embedded import EmbeddedBroker

pytestmark = pytest.mark.broker


class TestPartitionLedgerSource(ObservationSuite):
    """Looks at two topics, one of which is not there."""

    connector_class: ClassVar[type[Any]] = PartitionLedgerSource
    servers: ClassVar[str]
    own: ClassVar[Mapping[str, str]]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _broker(cls, broker: EmbeddedBroker, workload: Workload) -> None:
        topic = f"observed-{uuid.uuid4().hex}"
        workload.create_topic(topic, 2)
        cls.servers, cls.own = broker.bootstrap_servers, {"topics": f"{topic},never-there"}

    def config(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "interval.ms": "1000", **self.own}


class TestShareGroupOffsetsSource(TestPartitionLedgerSource):
    """Both samples of a run."""

    connector_class: ClassVar[type[Any]] = ShareGroupOffsetsSource
    listings = frozenset({"topics"})

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _broker(cls, broker: EmbeddedBroker) -> None:
        cls.servers, cls.own = broker.bootstrap_servers, {"state.wait.ms": "0"}
