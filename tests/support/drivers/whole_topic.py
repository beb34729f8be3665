"""What a plain consumer reads of a topic."""

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from acktrail.format.wire.raw_record import RawRecord

_PATIENCE_S = 60
_OWN = {"group.id": "reads-all", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 20}


def messages_of(properties: Mapping[str, Any], topic: str) -> Iterator[Message]:
    """Every message of a topic, from its partitions' beginnings until each was seen to end.

    The client says of one partition more than once that it ends, and of a connection that it opens again that it broke:
    neither counts as the end of another partition. `properties` are librdkafka's.
    """
    with Consumer({**_OWN, **properties}) as consumer:
        left = set(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        while left:
            message = consumer.poll(_PATIENCE_S)
            assert message is not None, f"partitions {sorted(left)} of {topic} do not end"
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                assert not error.fatal(), error


def records_of(properties: Mapping[str, Any], topic: str) -> Iterator[RawRecord]:
    """The same as records."""
    for message in messages_of(properties, topic):
        yield RawRecord(
            state_partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
        )
