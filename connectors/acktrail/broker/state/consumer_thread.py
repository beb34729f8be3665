"""Reading from librdkafka on a thread of its own: messages become Arrow columns while the ones before are decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, Final, NoReturn

import pyarrow as pa
from confluent_kafka import Consumer, Message

from acktrail.broker.state.arrow_messages import newest_epochs, raw_records

__all__ = ["ConsumerThread", "Fetched"]

_MESSAGES_AT_ONCE: Final = 1_000
"""Few enough to be still in the processor's cache when their columns are made: half the time of 25,000."""
_READS_OF_A_DELIVERY: Final = 32
_SLICE_S: Final = 0.02
"""`consume` returns early only when it is full: the wait for the last few records is cut into slices."""
_AHEAD: Final = 2
_LOOK_UP_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one read brought: records (columns of ``RAW_RECORDS``, in runs of a partition), and what is to be said about
    partitions: messages with an error. `epochs`: the newest leader epoch among the records of each partition."""

    records: pa.Table | None
    events: Sequence[Any]
    epochs: Mapping[int, int]


class ConsumerThread:
    """Consumes everything that is assigned to `consumer`, at most two deliveries before they are taken.

    From the first call on the consumer belongs to the feed's thread: what others want of it (assign, pause, unassign)
    they `ask` for, and it is done before the next read. What was read before is delivered all the same.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._wishes: SimpleQueue[Callable[[Consumer], object]] = SimpleQueue()
        self._queue: Queue[Callable[[], Fetched]] = Queue(_AHEAD)
        self._closed = Event()
        self._thread = Thread(target=self._read, name="acktrail-feed", daemon=True)
        self._thread.start()

    def ask(self, wish: Callable[[Consumer], object]) -> None:
        """Have `wish` called with the consumer before the next read; wishes are met in their order."""
        self._wishes.put(wish)

    def take(self, timeout_s: float) -> Fetched | None:
        """The next delivery; None when none came within `timeout_s`. Raises whatever reading raised."""
        try:
            return self._queue.get(timeout=timeout_s)()
        except Empty:
            return None

    def close(self) -> None:
        """End the reading and close the consumer."""
        self._closed.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        try:
            while not self._closed.is_set():
                delivery = self._next()
                if delivery is not None:
                    self._hand_over(partial(_given, delivery))
        except Exception as error:  # noqa: BLE001  # raised again by whoever takes
            self._hand_over(partial(_raise, error))

    def _next(self) -> Fetched | None:
        while not self._wishes.empty():
            self._wishes.get()(self._consumer)
        parts: list[pa.Table] = []
        events: list[Any] = []
        epochs: dict[int, int] = {}
        for _ in range(_READS_OF_A_DELIVERY):
            messages = self._consumer.consume(_MESSAGES_AT_ONCE, _SLICE_S)
            records = messages
            if any(map(Message.error, messages)):
                events += [message for message in messages if message.error() is not None]
                records = [message for message in messages if message.error() is None]
            if records:
                parts.append(raw_records(records))
                epochs |= newest_epochs(records, parts[-1])
            if len(messages) < _MESSAGES_AT_ONCE:
                break
        if not parts and not events:
            return None
        records = pa.concat_tables(parts).combine_chunks() if parts else None
        return Fetched(records=records, events=events, epochs=epochs)

    def _hand_over(self, given: Callable[[], Fetched]) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(given, timeout=_LOOK_UP_S)
            except Full:
                continue
            return


def _given(delivery: Fetched) -> Fetched:
    return delivery


def _raise(error: Exception) -> NoReturn:
    raise error
