"""What a look is worth when brokers do not agree. Their lists are made up: a broker lags by milliseconds alone."""

from __future__ import annotations

import pytest

from acktrail.kafka.descriptions import TopicPartition
from acktrail_expansion.looks.ledger_connector import ListedTopic, topic_rows


@pytest.mark.parametrize(
    ("first", "counts", "error", "consistency"),
    [
        (2, (2, 2), 0, "consistent"),
        (2, (2, 2), 6, "partial"),
        (2, (2, 3), 0, "straddles"),
        (3, (2, 3), 6, "straddles"),
        (2, (3, 3), 0, "straddles"),
        (2, (2, None), 0, "straddles"),
    ],
)
def test_one_broker_that_knows_more_spoils_the_look(
    first: int, counts: tuple[int | None, ...], error: int, consistency: str
) -> None:
    """A producer may have asked the broker that knows: ends of such a look are no low fence. None: silence."""
    topic = ListedTopic(name="orders", topic_id="id", leaders=((0, 0),) * first)
    logs = {TopicPartition(topic="orders", partition=number): {"error_code": error} for number in range(first)}
    rows = [*topic_rows(topic, [None if count is None else ("id", count) for count in counts], logs)]
    assert [(row["consistency"], row["partition_count"]) for row in rows] == [(consistency, first)] * first
