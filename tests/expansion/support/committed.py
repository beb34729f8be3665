"""Positions as a classic group commits them."""

from __future__ import annotations

from broker.workload import until
from confluent_kafka import Consumer, KafkaException, TopicPartition

from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig

__all__ = ["commit"]


def commit(kafka: KafkaConfig, group: str, topic: str, *offsets: int) -> None:
    """Commit `offsets`, one for each partition from 0 on. The first coordinator of a broker loads its state a while."""
    consumer = Consumer({**to_librdkafka(kafka), "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]

    def is_taken() -> bool:
        try:
            return bool(consumer.commit(offsets=places, asynchronous=False))
        except KafkaException as error:
            if error.args[0].name() == "COORDINATOR_LOAD_IN_PROGRESS":
                return False
            raise

    until(is_taken, what=f"the coordinator of {group}")
    consumer.close()
