"""Reading from librdkafka on a thread of its own: messages become Arrow columns while earlier ones are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Message

from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

_MESSAGES_AT_ONCE: Final = 1_000
"""Few enough to be still in the processor's cache when their columns are made: half the time of 25,000."""
_READS_AT_ONCE: Final = 32
_SLICE_S: Final = 0.02
"""`consume` returns early only when it is full: the wait for the last few records is cut into slices."""
_AHEAD: Final = 2
_LOOK_UP_S: Final = 0.1
_SHORT_RUN: Final = 256
"""Shorter runs (on average) are put together: each run costs about as much as some hundred rows."""


class Fetched(NamedTuple):
    """What some reads brought: records (columns of ``RAW_RECORDS``, in runs of a partition), and events: messages with
    an error. `epochs`: the newest leader epoch among the records of each partition."""

    records: pa.Table | None
    events: Sequence[Any]
    epochs: Mapping[int, int]


class ConsumerThread:
    """Consumes everything that is assigned to `consumer`, at most two `Fetched` ahead of ``take``.

    From the first call on the consumer belongs to the thread: other threads assign, pause and unassign by ``call``,
    which runs before the next read. What was read before is given all the same.

    `linger_s`: when less came than one call can return, wait so long for more before it is given: each `Fetched` costs
    its takers milliseconds, however few records it has.
    """

    def __init__(self, consumer: Consumer, *, linger_s: float = 0.0) -> None:
        self._consumer = consumer
        self._slice_s = max(_SLICE_S, linger_s)
        self._calls: SimpleQueue[Callable[[Consumer], object]] = SimpleQueue()
        self._queue: Queue[Fetched | Exception] = Queue(_AHEAD)
        self._closed = Event()
        self._thread = Thread(target=self._read, name="acktrail-feed", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[Consumer], object]) -> None:
        """Have `function` called with the consumer before the next read; calls keep their order."""
        self._calls.put(function)

    def take(self, timeout_s: float) -> Fetched | None:
        """The next records and events; None when none came within `timeout_s`. Raises any error of the reading."""
        try:
            found = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """End the reading and close the consumer."""
        self._closed.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        try:
            while not self._closed.is_set():
                fetched = self._next()
                if fetched is not None:
                    self._put(fetched)
        except Exception as error:  # noqa: BLE001  # raised again by ``take``
            self._put(error)

    def _next(self) -> Fetched | None:
        while not self._calls.empty():
            self._calls.get()(self._consumer)
        parts: list[pa.Table] = []
        events: list[Any] = []
        epochs: dict[int, int] = {}
        for _ in range(_READS_AT_ONCE):
            records = messages = self._consumer.consume(_MESSAGES_AT_ONCE, self._slice_s)
            if any(map(Message.error, messages)):
                events += [message for message in messages if message.error() is not None]
                records = [message for message in messages if message.error() is None]
            if records:
                parts.append(_raw_records(records))
                epochs |= _newest_epochs(records, parts[-1])
            if len(messages) < _MESSAGES_AT_ONCE:
                break
        if not parts and not events:
            return None
        records = pa.concat_tables(parts).combine_chunks() if parts else None
        return Fetched(records, events, epochs)

    def _put(self, found: Fetched | Exception) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(found, timeout=_LOOK_UP_S)
            except Full:
                continue
            return


def _raw_records(messages: Sequence[Any]) -> pa.Table:
    """Messages without errors as columns of ``RAW_RECORDS``, those of a partition in the order they came and in long
    runs (see `partition_runs`): a broker sends them like that, else the records of each partition are put together.

    Cost: five calls a message and one copy of its bytes; another copy when partitions come interleaved.
    """
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    timestamps = np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), np.int64, count)
    keys = _binary(list(map(Message.key, messages)))
    values = _binary(list(map(Message.value, messages)))
    columns = [*map(pa.array, (partitions, offsets, timestamps)), keys, values]
    rows = pa.Table.from_arrays(columns, schema=RAW_RECORDS)
    runs = np.count_nonzero(np.diff(partitions)) + 1
    return rows if runs * _SHORT_RUN <= count else rows.take(pa.array(np.argsort(partitions, kind="stable")))


def _newest_epochs(messages: Sequence[Any], rows: pa.Table) -> dict[int, int]:
    """The leader epoch of the newest record of each partition, where `rows` are the ``_raw_records`` of `messages`.

    Epochs never go back in a log. A message without one (record format 1) is left out.
    """
    if rows.column("offset")[-1].as_py() != messages[-1].offset():  # gathered by partition: the order is another one
        found = {message.partition(): message for message in messages}
        return {number: epoch for number, m in found.items() if (epoch := m.leader_epoch()) is not None}
    partitions = rows.column("partition").to_numpy()
    ends = [*np.flatnonzero(np.diff(partitions)).tolist(), len(messages) - 1]
    epochs = ((int(partitions[at]), messages[at].leader_epoch()) for at in ends)
    return {number: epoch for number, epoch in epochs if epoch is not None}


def _binary(texts: list[bytes | None]) -> pa.Array:
    """As ``pa.array``; a join is quicker where no value is null."""
    try:
        joined = b"".join(texts)  # type: ignore[arg-type]  # a null is the TypeError
    except TypeError:
        return pa.array(texts, pa.binary())
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=ends[1:])  # type: ignore[arg-type]  # none is null
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(joined)])


def partition_runs(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Each run of rows with the same partition in `column`, in their order."""
    partitions = rows.column(column).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        if end > start:
            yield int(partitions[start]), rows.slice(start, end - start)
