"""A cluster of two real brokers: leaders and coordinators can move, and logs can lose records."""

from __future__ import annotations

import base64
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from servers.kafka_proxy import KafkaProxy, kafka_proxy
from servers.workload import until

from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.embedded_broker import HOST, free_ports

__all__ = ["BrokerPair", "broker_pair"]

_COMMON = {
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "offsets.topic.replication.factor": "2",
    "share.coordinator.state.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "default.replication.factor": "2",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "200",
}


@dataclass(frozen=True, slots=True)
class BrokerPair:
    """`first` (node 1) is the controller as well and stays; `second` (node 2) may end and come back. `link` is how node
    1 reaches node 2: without it node 1 gets no copies, while clients reach both."""

    first: EmbeddedBroker
    second: EmbeddedBroker
    link: KafkaProxy

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.first.bootstrap_servers, "log_level": 0})

    def create_topic(self, name: str, leaders: Sequence[int], configs: Mapping[str, str]) -> None:
        """A topic with a partition for each of `leaders`, the other node follows."""
        assignment = [[leader, 3 - leader] for leader in leaders]
        topic = NewTopic(name, len(leaders), replica_assignment=assignment, config=dict(configs))
        admin = self.admin  # what it was asked ends with it
        admin.create_topics([topic])[name].result(30)
        until(lambda: self.leaders(name) == list(leaders), what="the leaders that were asked for")

    def leaders(self, name: str) -> list[int]:
        """Of each partition; -1: none."""
        found = self.admin.list_topics(name, timeout=30).topics[name].partitions
        return [found[number].leader for number in sorted(found)]

    def lead(self, name: str, leaders: Sequence[int]) -> None:
        """Move the leaders of a topic's partitions; both nodes have every record before and afterwards."""
        admin = KafkaAdminClient(bootstrap_servers=self.first.bootstrap_servers)
        try:
            wanted = {TopicPartition(name, n): [leader, 3 - leader] for n, leader in enumerate(leaders)}
            admin.alter_partition_reassignments(wanted)
            deadline = time.monotonic() + 60
            while self.leaders(name) != list(leaders):
                assert time.monotonic() < deadline
                admin.elect_leaders(0, {name: [*range(len(leaders))]}, raise_errors=False)
        finally:
            admin.close()


@contextmanager
def broker_pair(properties: Mapping[str, str]) -> Iterator[BrokerPair]:
    """Two nodes of one cluster that end with the block; `properties` win over the defaults of both."""
    ports, inner, other = free_ports(), free_ports(), free_ports()
    voters = {"controller.quorum.voters": f"1@{HOST}:{ports.controller}"}
    common = {**_COMMON, **properties, **voters}
    with ExitStack() as stack:
        listeners = _listeners(CLIENT=ports.client, INTERNAL=inner.client)
        own = {
            "listeners": f"{listeners},{_listeners(CONTROLLER=ports.controller)}",
            "advertised.listeners": listeners,
        }
        first = stack.enter_context(EmbeddedBroker(port=ports.client, properties={**common, **own}))
        link = stack.enter_context(kafka_proxy(f"{HOST}:{inner.controller}"))
        own = {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": _listeners(CLIENT=other.client, INTERNAL=inner.controller),
            "advertised.listeners": _listeners(CLIENT=other.client, INTERNAL=link.port),
        }
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acktrail-second-")))
        _format(folder / "data", _cluster_id(first))
        second = EmbeddedBroker(folder=folder, port=other.client, properties={**common, **own})
        stack.enter_context(second)
        yield BrokerPair(first, second, link)


def _listeners(**ports: int) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _cluster_id(broker: EmbeddedBroker) -> str:
    lines = (broker.folder / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))


def _format(data: Path, cluster_id: str) -> None:
    """What Kafka's storage tool writes for a broker, without a JVM."""
    data.mkdir()
    directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "a")
    lines = {"version": "1", "cluster.id": cluster_id, "node.id": "2", "directory.id": directory}
    (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
