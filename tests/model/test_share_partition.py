"""Names and placement of share partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.share_partition import (
    GroupId,
    SharePartition,
    TopicId,
    state_partition_of,
    topic_id_bytes,
    topic_id_text,
)

TOPIC_ID = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")


@pytest.mark.parametrize(
    ("group", "partition", "expected"),
    [("g1", 0, 39), ("g1", 1, 38), ("g1", 2, 37), ("my-group", 0, 23), ("a:b", 0, 10)],
)
def test_the_state_partition_equals_kafkas(group: str, partition: int, expected: int) -> None:
    """Kafka's own hash put these keys on these of 50 state partitions."""
    key = SharePartition(group_id=GroupId(group), topic_id=TOPIC_ID, partition=partition)

    assert state_partition_of(key, 50) == expected


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_round_trip(raw: bytes) -> None:
    """Every id's text is 22 URL-safe characters and gives its bytes back."""
    text = topic_id_text(raw)

    assert len(text) == 22
    assert topic_id_bytes(text) == raw


@pytest.mark.parametrize("text", ["", "AAAA", "AQIDBAUGBwgJCgsMDQ4PE!", "AQIDBAUGBwgJCgsMDQ4PEB", "x" * 40])
def test_a_malformed_topic_id_is_refused(text: str) -> None:
    """Text that is not the one form of 16 bytes is refused."""
    with pytest.raises(ValueError, match=r"topic id|padding|base64|characters"):
        topic_id_bytes(TopicId(text))
