"""How transactions ended, by a real coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer
from servers.workload import Workload

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.client.transactions import TransactionEnding, Transactions


@pytest.fixture
def transactions(admin: ShareGroupAdmin) -> Iterator[Transactions]:
    return Transactions(client_of(admin))


def begun(kafka: KafkaConfig, topic: str, transactional_id: str) -> Any:
    producer = Producer({**to_librdkafka(kafka), "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    assert producer.flush(30) == 0
    return producer


def test_first_end_of_a_transaction_counts(transactions: Transactions, kafka: KafkaConfig, workload: Workload) -> None:
    """An abort by somebody else keeps the writer from committing; after a commit the abort changes nothing. An id that
    was never used, and one that wrote nothing, have no ending."""
    topic = f"transactions-{uuid4().hex[:8]}"
    never, lost, kept = (f"{topic}-{word}" for word in ("never", "lost", "kept"))
    workload.create_topic(topic)
    transactions.check_right(never)
    loser, winner = (begun(kafka, topic, each) for each in (lost, kept))
    assert transactions.describe([lost])[lost].ending is TransactionEnding.OPEN
    winner.commit_transaction(30)
    found = transactions.end_open([never, lost, kept])
    assert {name: one.ending for name, one in found.items()} == {
        never: TransactionEnding.NONE,
        lost: TransactionEnding.ABORTED,
        kept: TransactionEnding.COMMITTED,
    }
    with pytest.raises(KafkaException):
        loser.commit_transaction(30)
    for name in (lost, kept):
        transactions._abort(name, found[name])
    assert transactions.describe([never, lost, kept]) == found
