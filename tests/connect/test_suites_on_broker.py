"""acktrail's sources on a real broker keep the promises that any source's suite asks for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import count
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from drivers.bounded_reading import keys
from servers.workload import Workload

from acktrail.config import KafkaConfig
from acktrail.format.wire.group_record import GroupRecordType, ShareGroupRecord
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.model.share_partition import GroupId
from acktrail_connect.source_testing import ObservationSuite, SourceSuite
from acktrail_connect.sources.observation_source import ShareGroupOffsetsSource
from acktrail_connect.sources.topic_sources import DeadLetterSource, ShareGroupMetadataSource
from acktrail_connect.testing import ConnectorSuite
from acktrail_simulation.messages.group_record_encoder import encode

_OFFSET_COMMIT = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"


class OnBroker(ConnectorSuite):
    """A broker, and new topics of `partitions` for each test."""

    kafka: ClassVar[KafkaConfig]
    workload: ClassVar[Workload]
    producer: ClassVar[Producer]
    partitions: ClassVar[tuple[int, ...]] = ()
    topics: list[str]
    numbers = count()

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def _broker(broker: Any, workload: Workload) -> None:
        OnBroker.kafka = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
        OnBroker.workload, OnBroker.producer = workload, Producer(to_librdkafka(OnBroker.kafka))

    def prepare(self) -> None:
        self.topics = [f"suite-{uuid.uuid4().hex}" for _ in self.partitions]
        for topic, partitions in zip(self.topics, self.partitions, strict=True):
            self.workload.create_topic(topic, partitions)

    @property
    def servers(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.kafka.bootstrap_servers}

    def clean_up(self) -> None:
        for topic in self.topics:
            self.workload.delete_topic(topic)


class TestDeadLetterSource(OnBroker, SourceSuite):
    """Dead letters of two topics, one of two partitions."""

    connector_class = DeadLetterSource
    rows = 6
    examples = 2
    poll_s = 0.1
    partitions = (2, 1)

    def config(self) -> Mapping[str, str]:
        return keys(self.kafka, topics=",".join(self.topics))

    def write(self, count: int) -> None:
        for _ in range(count):
            number = next(self.numbers)
            topic, partition = ((self.topics[0], 0), (self.topics[0], 1), (self.topics[1], 0))[number % 3]
            headers = [("__dlq.errors.offset", str(number).encode())]
            self.producer.produce(topic, partition=partition, headers=headers)
        assert self.producer.flush(30) == 0


class _OfATopic(ShareGroupMetadataSource):
    """Like `ShareGroupMetadataSource`, of a topic that tests can write to."""

    topic = ""


class TestShareGroupMetadataSource(OnBroker, SourceSuite):
    """Records of share groups, with others between them."""

    connector_class = _OfATopic
    examples = 3
    poll_s = 0.1
    partitions = (2,)

    def config(self) -> Mapping[str, str]:
        return keys(self.kafka)

    def prepare(self) -> None:
        super().prepare()
        _OfATopic.topic = self.topics[0]

    def write(self, count: int) -> None:
        for _ in range(count):
            number = next(self.numbers)
            group = {"record_type": GroupRecordType.METADATA, "group_id": GroupId(f"g{number}"), "member_id": None}
            key, value = encode(ShareGroupRecord(**group, fields={"epoch": number, "metadata_hash": 0}))
            self.producer.produce(_OfATopic.topic, value, key, partition=number % 2)
            self.producer.produce(_OfATopic.topic, b"", _OFFSET_COMMIT, partition=number % 2)
        assert self.producer.flush(30) == 0


class TestShareGroupOffsetsSource(OnBroker, ObservationSuite):
    """Both samples of a run."""

    connector_class = ShareGroupOffsetsSource
    listings = frozenset({"topics"})

    def config(self) -> Mapping[str, str]:
        return {**self.servers, "interval.ms": "1000", "state.wait.ms": "0"}


class TestPartitionLedgerSource(OnBroker, ObservationSuite):
    """Looks at one topic, where that branch is there."""

    partitions = (2,)

    def prepare(self) -> None:
        found = pytest.importorskip("acktrail_expansion.observations.ledger_connector", reason="no such branch")
        type(self).connector_class = found.PartitionLedgerSource
        super().prepare()

    def config(self) -> Mapping[str, str]:
        return {**self.servers, "interval.ms": "1000", "topics": self.topics[0]}
