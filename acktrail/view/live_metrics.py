"""Metrics of share groups for Prometheus from the brokers alone: no tables, no Spark (docs/reference/metrics.md).

The brokers are asked from time to time on a thread of its own; however many scrapers ask, they get what was seen last.
What is older than three intervals is not served: a broker that is silent makes no old number look new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Lock
from types import TracebackType
from typing import Final, NamedTuple, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.group_look import GroupLooks, Look
from acktrail.serving.gauge_families import build_info, families
from acktrail.serving.group_gauges import gauges_of, no_groups

_INTERVALS: Final = 3


class _Seen(NamedTuple):
    look: Look
    at: float
    """Seconds since the epoch."""
    clock_s: float
    """Of a clock that only moves forward."""


class LiveMetrics(Collector):
    """Collects what the newest look saw. `notice` gets a line when the brokers stop answering, and when they answer
    again. Use it as a context; `collect` from any thread. One look at a time: a look that waits for a broker when the
    context ends is left to its thread, with its connection."""

    def __init__(self, config: KafkaConfig, every_s: float, notice: Callable[[str], object] = lambda _: None) -> None:
        self._config, self._oldest_s, self._notice = config, _INTERVALS * every_s, notice
        self._admin: ShareGroupAdmin | None = None
        self._looks: GroupLooks | None = None
        self._newest: _Seen | None = None
        self._is_out = False
        self._one = Lock()

    def look(self) -> None:
        """Ask the brokers now. Where they do not answer, nothing is known from now on."""
        with self._one:
            try:
                self._newest = self._look()
            except AcktrailError as error:
                self._newest = None
                if not self._is_out:
                    self._notice(f"no metrics of groups: {error.with_hint}")
                self._is_out = True
                self._disconnect()
            else:
                if self._is_out:
                    self._notice("metrics of groups again")
                self._is_out = False

    def text(self) -> bytes:
        """The metrics now, in Prometheus's text format. Raises as `GroupLooks.look`."""
        with self._one:
            self._newest = self._look()
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """All families, in the same order every time."""
        yield build_info()
        seen = self._newest
        is_known = seen is not None and time.monotonic() - seen.clock_s <= self._oldest_s
        yield from families(
            gauges_of(seen.look.groups, seen.look.queues, seen.at) if seen and is_known else no_groups()
        )

    def _look(self) -> _Seen:
        if self._looks is None:
            self._admin = ShareGroupAdmin(self._config)
            self._looks = GroupLooks(self._admin)
        return _Seen(self._looks.look(), time.time(), time.monotonic())

    def _disconnect(self) -> None:
        """End the connection; the next look makes another one."""
        if self._admin is not None:
            self._admin.close()
        self._admin = self._looks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._one.acquire(blocking=False):
            self._disconnect()
            self._one.release()
