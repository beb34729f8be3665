"""A producer that chooses partitions by the count of its last metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acktrail_expansion.ordering.order import KeyMapping
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.expansion.expansion_broker import ExpansionBroker
from acktrail_simulation.expansion.expansion_messages import (
    RECORD_SET,
    KeyedRecord,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    RecordSet,
)
from acktrail_simulation.expansion.key_partitions import partition_of_key


@dataclass(slots=True, kw_only=True)
class StaleProducer:
    """Its records wait in `pending`, in order; one request a broker is under way at a time. `partition_count`: of its
    metadata, which are refreshed only by `refresh`."""

    number: int
    topic: str
    mapping: KeyMapping
    partition_count: int
    pending: list[KeyedRecord] = field(default_factory=list)
    produced: int = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """The application hands over a record of each key."""
        for key in keys:
            self.pending.append(KeyedRecord(producer=self.number, sequence=self.produced, key=key))
            self.produced += 1

    def refresh(self, partition_count: int) -> None:
        """Metadata say another count; records that wait get their partitions by it."""
        self.partition_count = partition_count

    def send(self, brokers: Sequence[ExpansionBroker], most: int) -> bool:
        """Send the first `most` records, all of one partition together; whether all were taken. What a broker refuses
        stays first in line, in its order, so that no record of a key overtakes another."""
        batch, later = self.pending[:most], self.pending[most:]
        by_partition: dict[int, list[KeyedRecord]] = {}
        for record in batch:
            at = partition_of_key(self.mapping, record.key, self.partition_count)
            assert at is not None, "every record of the simulation has a key and every producer a known mapping"
            by_partition.setdefault(at, []).append(record)
        refused = {
            record.sequence
            for broker in sorted({at % len(brokers) for at in by_partition})
            for at, error in brokers[broker].produce(self._request(by_partition, broker, len(brokers))).items()
            if error is not ErrorCode.NONE
            for record in by_partition[at]
        }
        self.pending = [record for record in batch if record.sequence in refused] + later
        return not refused

    def _request(self, records: Mapping[int, list[KeyedRecord]], broker: int, brokers: int) -> ProduceRequest:
        data = tuple(
            ProducePartition(partition=at, record_set=RECORD_SET.write(RecordSet(records=tuple(found))))
            for at, found in sorted(records.items())
            if at % brokers == broker
        )
        return ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=30_000,
            topic_data=(ProduceTopic(topic=self.topic, undeleted_partition_count=self.partition_count, data=data),),
        )
