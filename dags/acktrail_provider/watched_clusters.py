"""One client for each cluster in a process, however many triggers of a triggerer ask about its groups.

Triggers run in one event loop, and a client blocks: each has a thread of its own. What triggers ask while a round of
requests is out goes into the next round, together. A client is made for the first trigger and closed after the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError
from acktrail.model.drained import GroupLeft, Wanted

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.drain_look import DrainLooks

_Found = Mapping[Wanted, GroupLeft]


class WatchedCluster:
    """A cluster that several triggers ask about."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="acktrail-share-groups")
        self._admin: ShareGroupAdmin | None = None
        self._looks: DrainLooks | None = None
        self._asked: set[Wanted] = set()
        self._next: asyncio.Task[_Found] | None = None
        self._one_at_a_time = asyncio.Lock()
        self.users = 0

    async def look(self, wanted: Collection[Wanted]) -> _Found:
        """Look now, together with what others ask. Raises as `DrainLooks.look`, and as a client that is opened."""
        self._asked.update(wanted)
        if self._next is None:
            self._next = asyncio.create_task(self._round())
        return await asyncio.shield(self._next)  # a trigger that is cancelled leaves the round to the others

    async def _round(self) -> _Found:
        async with self._one_at_a_time:
            asked, self._asked, self._next = frozenset(self._asked), set(), None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, asked)

    def _look(self, asked: Collection[Wanted]) -> _Found:
        """In the thread. After an error the next round makes a new connection."""
        from acktrail.kafka.admin import ShareGroupAdmin
        from acktrail.kafka.drain_look import DrainLooks

        try:
            if self._looks is None:
                self._admin = ShareGroupAdmin(self._kafka)
                self._looks = DrainLooks(self._admin)
            return self._looks.look(asked)
        except Exception:
            self._close()
            raise

    def _close(self) -> None:
        admin, self._admin, self._looks = self._admin, None, None
        if admin is not None:
            with suppress(AcktrailError):
                admin.close()

    def end(self) -> None:
        """Close the client when the round that is out has ended."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)


_clusters: Final[dict[tuple[str, frozenset[tuple[str, str]]], WatchedCluster]] = {}


@asynccontextmanager
async def watched(kafka: KafkaConfig) -> AsyncIterator[WatchedCluster]:
    """The cluster of a client configuration, shared by all who use the same one at the time."""
    key = kafka.bootstrap_servers, frozenset(kafka.properties.items())
    cluster = _clusters.get(key) or WatchedCluster(kafka)
    _clusters[key] = cluster
    cluster.users += 1
    try:
        yield cluster
    finally:
        cluster.users -= 1
        if not cluster.users:
            del _clusters[key]
            cluster.end()
