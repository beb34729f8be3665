"""How long a reader of a log waits: for the next message, not for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from acktrail.config import KafkaConfig
from acktrail.errors import RetryableError
from acktrail.kafka.client import librdkafka
from acktrail.kafka.client.librdkafka import LogReader


class SlowConsumer:
    """Gives a message each time its clock has gone on for `every_s`, the first `count` times."""

    def __init__(self, every_s: float, count: int) -> None:
        self.now, self._due = 0.0, [every_s * (1 + number) for number in range(count)]

    def assign(self, _: Any) -> None:
        """Nothing to do."""

    unassign = close = lambda *_: None

    def consume(self, _: int, timeout_s: float) -> list[str]:
        """What is due; waiting lets a second pass."""
        if self._due and self._due[0] <= self.now:
            self._due.pop(0)
            return ["message"]
        self.now += 1.0 if timeout_s else 0.0
        return []


def test_a_reader_waits_anew_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that come one by one are all read, however long that takes; then nothing comes, and that is said."""
    consumer = SlowConsumer(every_s=8, count=5)
    monkeypatch.setattr(librdkafka, "new_log_consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(librdkafka.time, "monotonic", lambda: consumer.now)
    read: list[str] = []
    with LogReader(KafkaConfig(bootstrap_servers="h:1"), "orders", group_id="g", timeout_s=10) as reader:
        messages = reader.messages({0: 0})
        with pytest.raises(RetryableError, match="orders does not answer"):
            read.extend(messages)
    assert len(read) == 5
    assert 50 < consumer.now < 53
