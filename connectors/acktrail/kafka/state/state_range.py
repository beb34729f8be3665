"""Ranges of offsets of the state topic, or of another one: what there is now, and one range read by itself, on any
machine, again and again with the same records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.errors import ForeignCluster, LogChanged, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.log_fetcher import FetchEvent, LogFetcher
from acktrail.kafka.state.state_topic import StateTopic
from acktrail.model.share_partition import STATE_TOPIC

_STALL_S: Final = 90.0
_NEXT: Final = "begin with a checkpoint of its own: offsets of one topic mean nothing in another"


class Incarnation(NamedTuple):
    """One topic of one cluster; `topic_id` empty: the cluster has no state topic yet."""

    cluster_id: str
    topic_id: str

    def check(self, now: Incarnation) -> None:
        """Raises ForeignCluster unless `now` is the same, or the topic was not there yet."""
        if self.cluster_id != now.cluster_id:
            raise ForeignCluster(
                f"the offsets are of cluster {self.cluster_id}, and this is cluster {now.cluster_id}",
                hint=_NEXT,
                data={"cluster_id": self.cluster_id, "cluster_id_now": now.cluster_id},
            )
        if self.topic_id not in ("", now.topic_id):
            raise ForeignCluster(
                "the topic was deleted or recreated: the offsets are of another one",
                hint=_NEXT,
                data={"topic_id": self.topic_id, "topic_id_now": now.topic_id},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRange:
    """Offsets `first_offset` to before `end_offset` of one partition of an incarnation of the state topic."""

    incarnation: Incarnation
    partition: int
    first_offset: int
    end_offset: int


class PrunedOffsets(NamedTuple):
    """Offsets, both ends inclusive, that the log does not hold any more."""

    first_offset: int
    last_offset: int


def state_topic_now(config: KafkaConfig) -> tuple[Incarnation, Mapping[int, LogOffsets]]:
    """The state topic and where its logs begin and end, by partition; none while there is no such topic. Raises
    NotAuthorized (READ on the topic is missing), Unreachable, RetryableError."""
    with ShareGroupAdmin(config) as admin:
        topic = StateTopic(admin, STATE_TOPIC)
        if not topic.is_present:
            return Incarnation(topic.cluster_id, ""), {}
        return Incarnation(topic.cluster_id, topic.topic_id), topic.log_offsets()


def read_raw_range(config: KafkaConfig, topic_name: str, wanted: StateRange) -> Iterator[pa.Table | PrunedOffsets]:
    """The records of a range of any topic (``RAW_RECORDS``) in their order, some megabytes at a time, without those of
    aborted transactions, and what was pruned. An open transaction before `end_offset` keeps it waiting.

    Raises ForeignCluster (another cluster, or the topic was recreated), LogChanged (the log was truncated), and as
    `LogFetcher`; RetryableError also when nothing came for 90 s.
    """
    with ShareGroupAdmin(config) as admin:
        topic = StateTopic(admin, topic_name)
        wanted.incarnation.check(Incarnation(topic.cluster_id, topic.topic_id if topic.is_present else ""))
        yield from _RangeReading(admin, topic, wanted).parts()


class _RangeReading:
    def __init__(self, admin: ShareGroupAdmin, topic: StateTopic, wanted: StateRange) -> None:
        self._topic, self._wanted = topic, wanted
        self._fetcher = LogFetcher(client_of(admin), topic.name, topic.topic_id)
        self._at, self._moved_at = wanted.first_offset, time.monotonic()

    def parts(self) -> Iterator[pa.Table | PrunedOffsets]:
        number = self._wanted.partition
        self._fetcher.assign(number, self._at)
        while self._at < self._wanted.end_offset:
            fetched = self._fetcher.fetch()
            offsets = fetched.records.column("offset")
            is_wanted = pc.and_(pc.greater_equal(offsets, self._at), pc.less(offsets, self._wanted.end_offset))
            rows = fetched.records.filter(is_wanted)
            if rows.num_rows:
                yield rows
            self._reach(fetched.reached.get(number, self._at))
            event = fetched.events.get(number)
            if event is not None:
                yield from self._find_again(event)
            self._wait()

    def _find_again(self, event: FetchEvent) -> Iterator[PrunedOffsets]:
        """The log does not have the next offset: it was pruned, or this is not the same log any more."""
        self._topic.check_incarnation()
        log = self._topic.log_offsets([self._wanted.partition])[self._wanted.partition]
        if event is FetchEvent.TRUNCATED or self._at > (log.high_watermark or 0):
            raise LogChanged(
                f"partition {self._wanted.partition} of {self._topic.name} was truncated while it was read",
                hint="run again; where it fails again, begin with a checkpoint of its own",
                data={"partition": self._wanted.partition, "offset": self._at},
            )
        start = min(log.log_start_offset or 0, self._wanted.end_offset)
        if start > self._at:
            yield PrunedOffsets(self._at, start - 1)
            self._reach(start)
        self._fetcher.assign(self._wanted.partition, self._at)

    def _reach(self, offset: int) -> None:
        if offset > self._at:
            self._at, self._moved_at = offset, time.monotonic()

    def _wait(self) -> None:
        if self._at < self._wanted.end_offset and self._fetcher.pause_s:
            time.sleep(self._fetcher.pause_s)
        if time.monotonic() - self._moved_at > _STALL_S:
            raise RetryableError(
                f"no record came from partition {self._wanted.partition} of {self._topic.name} for {_STALL_S:g} s",
                hint="does the partition have a leader?",
            )
