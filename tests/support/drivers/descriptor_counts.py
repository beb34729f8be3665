"""How many descriptors a process has open after each failed connection. It is a process of its own: in the one of the
tests the clients of other tests open and close theirs."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import pytest
from drivers.own_process import printed
from kafka.protocol.metadata import MetadataRequest
from servers.kafka_proxy import kafka_proxy

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse

__all__ = ["descriptor_counts"]


def descriptor_counts(fault: str, config: KafkaConfig) -> list[int]:
    """The counts of one of `_FAULTS`, after each time."""
    asked = {"servers": config.bootstrap_servers, "properties": dict(config.properties), "fault": fault}
    surroundings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    counts: list[int] = json.loads(printed(sys.executable, __file__, input=json.dumps(asked), env=surroundings))
    return counts


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _outage(reached: KafkaConfig) -> list[int]:
    """Nobody takes a connection: of a client that lives on, and of new ones."""
    counts = []
    with kafka_proxy(reached.bootstrap_servers) as proxy:
        config = KafkaConfig(bootstrap_servers=proxy.address)
        with BrokerClient(config) as client:
            known = client.metadata([])
            known.brokers[0].node_id, known.brokers[0].port = 99, proxy.port
            client._cluster.update_metadata(known)
            proxy.go_down()
            for _ in range(40):
                with pytest.raises(Unreachable):
                    BrokerClient(config)
                client._manager._backoff.clear()
                (answer,) = client.send_all([(99, MetadataRequest(topics=[]))])
                assert isinstance(answer, NoResponse)
                counts.append(_open_descriptors())
    return counts


def _refusal(config: KafkaConfig) -> list[int]:
    """A handshake or a login fails."""
    counts = []
    for _ in range(6):
        with pytest.raises(ConfigurationError):
            ShareGroupAdmin(config)
        counts.append(_open_descriptors())
    return counts


_FAULTS = {"an outage": _outage, "a refusal": _refusal}


if __name__ == "__main__":
    gc.disable()  # nothing closes a socket but who opened it
    asked = json.load(sys.stdin)
    found = _FAULTS[asked["fault"]](KafkaConfig(bootstrap_servers=asked["servers"], properties=asked["properties"]))
    json.dump(found, sys.stdout)
