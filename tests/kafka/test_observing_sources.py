"""The source that observes groups keeps the promises of its suite on a real broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from acktrail.connect.testing import ObservationSuite
from acktrail.embedded import EmbeddedBroker
from acktrail.kafka.groups.offsets_connector import ShareGroupOffsetsSource

pytestmark = pytest.mark.broker


class TestShareGroupOffsetsSource(ObservationSuite):
    """Both samples of a run."""

    connector_class: ClassVar[type[Any]] = ShareGroupOffsetsSource
    listings = frozenset({"topics"})
    servers: ClassVar[str]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _broker(cls, broker: EmbeddedBroker) -> None:
        cls.servers = broker.bootstrap_servers

    def config(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "interval.ms": "1000", "state.wait.ms": "0"}
