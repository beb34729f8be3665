"""Fetching on a thread of its own: records become columns while earlier ones are decoded."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Final

from acktrail.config import KafkaConfig
from acktrail.format.columns.decoding.batch_columns import BatchColumns, batch_columns
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.state.log_fetcher import Fetched, LogFetcher

_AHEAD: Final = 1
_LOOK_UP_S: Final = 0.1
_PATIENCE_S: Final = 2.0


class FetchThread:
    """Fetches what is assigned: one `Fetched` waits for ``take``, another for its place. What was fetched before a
    partition was assigned or unassigned is given all the same. `linger_s` and `columns` as of `LogFetcher`."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        topic_id: str,
        *,
        linger_s: float = 0.0,
        columns: BatchColumns = batch_columns,
    ) -> None:
        self._config, self._name, self._topic_id = config, name, topic_id
        self._linger_s, self._columns = linger_s, columns
        self._calls: SimpleQueue[Callable[[LogFetcher], None]] = SimpleQueue()
        self._queue: Queue[Fetched | Exception] = Queue(_AHEAD)
        self._closed = Event()
        self._thread = Thread(target=self._run, name="acktrail-fetch", daemon=True)
        self._thread.start()

    def assign(self, partition: int, offset: int) -> None:
        """Read `partition` from `offset` on, from the next request on."""
        self._calls.put(lambda fetcher: fetcher.assign(partition, offset))

    def unassign(self, partition: int) -> None:
        """Read `partition` no more, from the next request on."""
        self._calls.put(lambda fetcher: fetcher.unassign(partition))

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
        """End the reading. A request that is under way for longer ends by itself."""
        self._closed.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        try:
            with BrokerClient(self._config) as client:
                fetcher = LogFetcher(client, self._name, self._topic_id, linger_s=self._linger_s, columns=self._columns)
                while not self._closed.wait(fetcher.pause_s):
                    while not self._calls.empty():
                        self._calls.get()(fetcher)
                    fetched = fetcher.fetch()
                    if not fetched.is_empty:
                        self._put(fetched)
        except Exception as error:  # noqa: BLE001  # raised again by ``take``
            self._put(error)

    def _put(self, found: Fetched | Exception) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(found, timeout=_LOOK_UP_S)
            except Full:
                continue
            return
