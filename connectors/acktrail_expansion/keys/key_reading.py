"""The keys of the records around an expansion, read by executors: exact fences, and the keys at risk of each verdict.

Of each source the records are read from where the group stood that is furthest behind, and at least some below the low
fence for the newest one there, up to as long after the high fence as producers had to settle; of each new partition
from its beginning up to then. Nothing is read beyond the next expansion, nor beyond an open transaction, and records of
aborted transactions do not count. Keys stay in memory: tables get their digests.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.error_codes import NONE, error_for
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.topic_configs import is_compacted
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import KafkaConfig
from acktrail.connect.activity import doing
from acktrail.errors import NotAuthorized
from acktrail.executors import OpenExecutors, balanced_shares
from acktrail.tables.delta.store import Tables
from acktrail_expansion.branch import STEP
from acktrail_expansion.keys.key_fences import fences_by_keys, keys_of_both, with_keys_at_risk
from acktrail_expansion.keys.key_stretch import COUNTS, FIND_KEYS, NEW, OLD, KeyStretch, find_moves
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.words import counted

FENCES: Final = "expansion_fences"
VERDICTS: Final = "expansion_verdicts"
_AT_ONCE: Final = 500_000
"""Offsets of one stretch: what one executor reads before another may help."""
_BELOW: Final = 1_000
"""Offsets below a low fence that are looked through for the newest record."""
_AT_LEAST: Final = 100_000
"""Offsets from a low fence on, or from the beginning of a new partition, that are read however old they are."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_READ: Final = "READ"
_SHARED: Final = ("cluster_id", "topic", "topic_id", "old_count", "new_count")
"""Columns of an expansion that a stretch has, too."""

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysRead:
    """What was read: `both` are the keys with records of both counts (``keys_of_both``); `has_changed`: fences are
    other ones than before, so that verdicts may be."""

    event_id: str
    records: int
    has_changed: bool
    both: pa.Table = field(repr=False)


def read_keys(kafka: KafkaConfig, stored: Tables, open_executors: OpenExecutors, event: _Row) -> KeysRead:
    """Read the keys around `event` (a settled row of ``partition_expansions`` with a known key mapping), and put what
    they show into its rows of ``expansion_fences``.

    Raises:
        NotAuthorized: READ on the topic. ForeignCluster: the topic was recreated. LogChanged, RetryableError: the topic
            changed; read again. ConcurrentCommit: an audit of later looks wrote meanwhile; check again.
    """
    topic = event["topic"]
    with ShareGroupAdmin(kafka) as admin:
        operations = admin.rights((), [topic]).topics[topic]
        if operations is not None and _READ not in operations:
            raise NotAuthorized(_READ, "the topic")
        step = stored.transaction_version(FENCES, STEP)
        scope = _Scope(stored, admin, event)
        stretches = list(scope.stretches(kafka))
        compacted = is_compacted(client_of(admin), topic)
    doing(f"reading the keys of about {counted(sum(map(_offsets, stretches)), 'record')}")
    with open_executors("") as executors:
        found = executors.run(FIND_KEYS, balanced_shares(stretches, _offsets, executors.count), find_moves)
    counts = found[COUNTS].to_pylist()
    before = list(scope.fences.values())
    rows = fences_by_keys(before, scope.ends, counts, is_compacted=compacted)
    _put(stored, FENCES, event["event_id"], rows, step)
    return KeysRead(
        event_id=event["event_id"],
        records=sum(row["records"] for row in counts),
        has_changed=[_rests_on(row) for row in before] != [_rests_on(row) for row in rows],
        both=keys_of_both(found[OLD], found[NEW]),
    )


def store_keys_at_risk(stored: Tables, read: KeysRead) -> None:
    """Name the keys at risk of each verdict on the expansion, by digest."""
    step = stored.transaction_version(VERDICTS, STEP)
    if rows := stored.rows(VERDICTS, {"event_id": read.event_id}):
        _put(stored, VERDICTS, read.event_id, with_keys_at_risk(rows, read.both), step)


def _put(stored: Tables, name: str, event_id: str, rows: Iterable[_Row], step: int | None) -> None:
    """Rows of one expansion in place of those that a table had of it at the audit `step`. Raises ConcurrentCommit: an
    audit of later looks has written since, and its rows stay."""
    others = stored.read(name, where=pc.field("event_id") != event_id)
    table = pa.concat_tables([others, pa.Table.from_pylist(list(rows), schema=TABLES[name])])
    stored.replace(name, table, expected={STEP: step})


def _rests_on(fence: _Row) -> tuple[int | None, ...]:
    """What verdicts and findings rest on."""
    return fence["fence_exact"], fence["last_record_offset"], fence["late_records"]


def _offsets(stretch: KeyStretch) -> int:
    return stretch.end_offset - stretch.first_offset


class _Scope:
    """Which offsets to read."""

    def __init__(self, stored: Tables, admin: ShareGroupAdmin, event: _Row) -> None:
        self._event = event
        own = stored.rows(FENCES, {"event_id": event["event_id"]})
        own.sort(key=lambda row: row["partition"])
        self.fences: dict[int, _Row] = {row["partition"]: row for row in own}
        self._stood = _furthest_behind(stored.rows(VERDICTS, {"event_id": event["event_id"]}))
        after = {"topic_id": event["topic_id"], "old_count": event["new_count"]}
        following = stored.rows("partition_expansions", after)
        later = [fence for row in following for fence in stored.rows(FENCES, {"event_id": row["event_id"]})]
        self._next: Mapping[int, int | None] = {row["partition"]: row["fence_low"] for row in later}
        self.ends = self._ends(admin)

    def _ends(self, admin: ShareGroupAdmin) -> dict[int, int]:
        """Up to where to read each partition."""
        event = self._event
        every = [TopicPartition(topic=event["topic"], partition=each) for each in range(event["new_count"])]
        later = 2 * (event["settles_at"] - event["first_seen_new_at"]) + event["first_seen_new_at"]
        at_ms, ends = (later - _EPOCH) // dt.timedelta(milliseconds=1), {}
        for log, at in zip(admin.list_offsets(every), admin.offsets_at(every, at_ms), strict=True):
            if log.error_code != NONE:
                raise error_for(log.error_code, None, operation=_READ, kind="topic", name=log.topic)
            stable, low = log.last_stable_offset or 0, self._low(log.partition) or 0
            high = self.fences.get(log.partition, {}).get("fence_high") or 0
            wanted = stable if at.offset is None else max(at.offset, high, low + _AT_LEAST)
            following = self._next.get(log.partition)
            ends[log.partition] = min(wanted, stable, stable if following is None else following)
        return ends

    def _low(self, partition: int) -> int | None:
        low: int | None = self.fences[partition]["fence_low"] if partition in self.fences else 0
        return low

    def stretches(self, kafka: KafkaConfig) -> Iterator[KeyStretch]:
        """In the order of partitions and offsets; nothing of a source without a low fence."""
        event = self._event
        for partition, end in self.ends.items():
            low = self._low(partition)
            if low is None:
                continue
            whole = KeyStretch(
                kafka=kafka,
                **{name: event[name] for name in _SHARED},
                partition=partition,
                first_offset=max(0, min(low - _BELOW, self._stood.get(partition, low))),
                end_offset=end,
                fence_low=low,
                fence_high=self.fences.get(partition, {}).get("fence_high"),
                mapping=KeyMapping(event["key_mapping"]),
            )
            for at in range(whole.first_offset, end, _AT_ONCE):
                yield replace(whole, first_offset=at, end_offset=min(at + _AT_ONCE, end))


def _furthest_behind(verdicts: Iterable[_Row]) -> dict[int, int]:
    """The first open record of each source, of all groups: of several offsets the lowest comes last, and stays."""
    pairs = ((row["source_offset"], row["source_partition"]) for row in verdicts if row["source_offset"] is not None)
    return {source: offset for offset, source in sorted(pairs, reverse=True)}
