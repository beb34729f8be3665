"""The source of looks keeps the promises of its suite on a real broker, and says which rights it lacks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from broker.test_connector_rights import OFTEN, SEEN, TOPICS, says_which_rights
from broker.workload import Workload

from acktrail.connect.testing import ObservationSuite
from acktrail.embedded import EmbeddedBroker
from acktrail_expansion.looks.ledger_connector import PartitionLedgerSource

pytestmark = pytest.mark.broker


class TestPartitionLedgerSource(ObservationSuite):
    """Looks at two topics, one of which is not there."""

    connector_class: ClassVar[type[Any]] = PartitionLedgerSource
    servers: ClassVar[str]
    topics: ClassVar[str]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _broker(cls, broker: EmbeddedBroker) -> None:
        topic = f"observed-{uuid.uuid4().hex}"
        Workload(broker.config()).create_topic(topic, 2)
        cls.servers, cls.topics = broker.bootstrap_servers, f"{topic},never-there"

    def config(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "interval.ms": "1000", "topics": self.topics}


def test_it_says_which_rights_it_lacks(guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path) -> None:
    """DESCRIBE on groups and topics."""
    says_which_rights(guarded, guarded_workload, tmp_path, "PartitionLedgerSource", (SEEN[0], TOPICS), OFTEN)
