"""Numbers that Kafka has no room for reach no request, and a misspelt client property is no property."""

from __future__ import annotations

from typing import Any

import pytest

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import NewStartOffset
from acktrail.broker.client.client_settings import ClientSettings
from acktrail.broker.descriptions import TopicPartition
from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError, InputError


@pytest.mark.broker
@pytest.mark.parametrize("number", [1.0, 1.5, True, "1", None, 1 << 63])
def test_what_is_no_offset_is_refused_before_anything_is_sent(admin: ShareGroupAdmin, number: Any) -> None:
    """A start offset is a whole number of 63 bits; the error names the share partition."""
    with pytest.raises(InputError, match="orders:0: no such start offset"):
        admin.alter_offsets("g", [NewStartOffset(topic="orders", partition=0, start_offset=number)])


@pytest.mark.broker
@pytest.mark.parametrize("number", [0.0, False, "0", None, 1 << 31, -(1 << 31) - 1])
def test_what_is_no_partition_is_refused_before_anything_is_sent(admin: ShareGroupAdmin, number: Any) -> None:
    """A partition is a whole number of 31 bits, in every call that takes one."""
    calls = [
        lambda: admin.alter_offsets("g", [NewStartOffset(topic="orders", partition=number, start_offset=0)]),
        lambda: admin.list_offsets([TopicPartition(topic="orders", partition=number)]),
        lambda: admin.offsets_at([TopicPartition(topic="orders", partition=number)], 0),
        lambda: admin.describe_offsets("g", {"orders": [number]}),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()


@pytest.mark.broker
@pytest.mark.parametrize("number", [1.5, True, -5, 1 << 63])
def test_what_is_no_time_is_refused(admin: ShareGroupAdmin, number: Any) -> None:
    """A time is whole milliseconds since 1970: Kafka's special negative times are not for callers."""
    with pytest.raises(InputError, match="is no time"):
        admin.offsets_at([TopicPartition(topic="orders", partition=0)], number)


@pytest.mark.parametrize(
    ("name", "nearest"), [("securty.protocol", "security.protocol"), ("clientid", "client.id"), ("Sasl.mechanism", "")]
)
def test_a_property_that_no_client_knows_is_refused(name: str, nearest: str) -> None:
    """A misspelt security.protocol would silently mean plain text."""
    with pytest.raises(ConfigurationError) as caught:
        ClientSettings.from_config(KafkaConfig(bootstrap_servers="b:9092", properties={name: "SECRET"}))

    assert name in caught.value.message
    assert nearest in caught.value.hint
    assert "SECRET" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("name", ["max.poll.records", "statistics.interval.ms", "default.api.timeout.ms", "group.id"])
def test_properties_of_other_tools_may_stand_in_the_same_file(name: str) -> None:
    """What Kafka's clients or librdkafka know, and acktrail does not need, has no effect."""
    plain = ClientSettings.from_config(KafkaConfig(bootstrap_servers="b:9092"))

    assert ClientSettings.from_config(KafkaConfig(bootstrap_servers="b:9092", properties={name: "7"})) == plain
