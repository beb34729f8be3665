"""The key audit of an expansion: the keys of the records around its fences are read, which gives the exact fence of
each source, and the keys whose order depends on the consumer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.error_codes import NONE, error_for
from acktrail.broker.descriptions import LogOffsets, TopicPartition
from acktrail.broker.topic_configs import is_compacted
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError, ForeignCluster, RetryableError, UnknownName
from acktrail.executors import OpenExecutors, balanced_shares
from acktrail.expansions.key_audit_rows import judged_rows, write_audit
from acktrail.expansions.key_moves import COUNTS, FIND_KEYS, NEW, OLD, KeyStretch, find_moves, keys_of_both
from acktrail.model.expansion.expansion_texts import counted
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.partition_ledger import ExpansionStatus
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.delta.store import Tables
from acktrail.times import instant_text, new_run_id

_AT_ONCE: Final = 500_000
"""Offsets of one stretch: what one executor reads before another may help."""
_BEFORE: Final = 1_000
"""Offsets below a low fence that are looked through for the newest record."""
_MS: Final = dt.timedelta(milliseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAtRisk:
    """A key with records of both counts in what was read: its last one of the old count is to be finished before the
    first of the new count is begun. Times in ms since the epoch, as the topic has them."""

    key: bytes = field(repr=False)
    source_partition: int
    last_old_offset: int
    last_old_ms: int | None
    partition: int
    first_new_offset: int
    first_new_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAuditSummary:
    """What was found. `sources` are the rows of ``key_audits``; `settle_too_short` the sources where producers used the
    old count for longer than the settle time; `keys` the keys at risk themselves, where they were asked for."""

    run_id: str
    event_id: str
    topic: str
    old_count: int
    new_count: int
    key_mapping: str
    records: int
    sources: Sequence[Mapping[str, Any]]
    keys_at_risk: int
    settle_too_short: tuple[int, ...]
    keys: tuple[KeyAtRisk, ...] | None = None


def audit_keys(
    kafka: KafkaConfig,
    tables: TablesConfig,
    open_executors: OpenExecutors,
    topic: str,
    *,
    event_id: str | None = None,
    shows_keys: bool = False,
) -> KeyAuditSummary:
    """Read the keys of `topic` around its expansion `event_id` (None: the newest) and write ``key_audits``,
    ``keys_at_risk`` and the exact fences of ``expansion_fences``.

    Of each source the records from the low fence to the high one are read, and for as long again as producers had to
    settle, and some below it, for the newest one of them; of each new partition those up to the settle time; nothing
    beyond the next expansion, nor beyond an open transaction. Records of aborted transactions do not count. Needs READ
    on the topic.

    Raises:
        UnknownName: no such expansion is in the ledger. ForeignCluster: the topic was recreated since.
        ConfigurationError: how producers map keys to partitions is not known.
        RetryableError: the expansion is not settled yet.
    """
    stored = Tables(tables)
    with ShareGroupAdmin(kafka) as admin:
        ensure_same_cluster(stored, admin.cluster_id, ("partition_expansions", "expansion_fences"))
        event = _event(stored, admin, topic, event_id)
        scope = _Scope(stored, admin, event)
        stretches = scope.stretches(kafka)
        compacted = is_compacted(client_of(admin), topic)
    rows = sum(each.end_offset - each.first_offset + each.before for each in stretches)
    doing(f"reading the keys of about {counted(rows, 'record')}")
    with open_executors("") as executors:
        shares = balanced_shares(
            stretches, lambda each: each.end_offset - each.first_offset + each.before, executors.count
        )
        found = executors.run(FIND_KEYS, shares, find_moves)
    both = keys_of_both(found[OLD], found[NEW])
    run_id = new_run_id()
    sources = judged_rows(event, scope.fences, scope.ends, found[COUNTS], run_id=run_id, is_compacted=compacted)
    write_audit(stored, event, sources, both, run_id=run_id)
    return KeyAuditSummary(
        run_id=run_id,
        event_id=event["event_id"],
        topic=topic,
        old_count=event["old_count"],
        new_count=event["new_count"],
        key_mapping=event["key_mapping"],
        records=pc.sum(found[COUNTS]["records"]).as_py() or 0,
        sources=sources,
        keys_at_risk=both.num_rows,
        settle_too_short=tuple(
            row["partition"]
            for row in sources
            if None not in (row["fence_exact"], row["fence_high"]) and row["fence_exact"] > row["fence_high"]
        ),
        keys=tuple(map(_key, both.to_pylist())) if shows_keys else None,
    )


def _key(row: Mapping[str, Any]) -> KeyAtRisk:
    return KeyAtRisk(
        key=row["key"],
        source_partition=row["partition"],
        last_old_offset=row["offset"],
        last_old_ms=row["timestamp"],
        partition=row["partition_new"],
        first_new_offset=row["offset_new"],
        first_new_ms=row["timestamp_new"],
    )


def _event(stored: Tables, admin: ShareGroupAdmin, topic: str, event_id: str | None) -> _Row:
    """The expansion, once it is settled; with `next_event` the id of the one after it."""
    rows = stored.rows("partition_expansions", {"cluster_id": admin.cluster_id, "topic": topic})
    if not rows:
        known = {row["topic"] for row in stored.rows("partition_expansions", columns=["topic"])}
        raise UnknownName("expanded topic", topic, nearest=get_close_matches(topic, known, n=3))
    (described,) = admin.topics([topic])
    if described.error_code != NONE:
        raise error_for(described.error_code, None, operation="READ", kind="topic", name=topic)
    own = sorted((row for row in rows if event_id in (None, row["event_id"])), key=lambda row: row["sequence"])
    if not own:
        raise UnknownName("expansion", event_id or "", nearest=[row["event_id"] for row in rows])
    now = [row for row in own if row["topic_id"] == described.topic_id]
    if not now:
        text = f"topic {topic!r} was recreated since: its keys around that expansion are gone"
        raise ForeignCluster(text, hint="acktrail expand audit reads the observations of the topic as it is now")
    event = now[-1]
    if KeyMapping(event["key_mapping"]) is KeyMapping.NONE:
        text = f"how producers choose the partition of a key in topic {topic!r} is not known: no key can be judged"
        raise ConfigurationError(
            text, hint=f"set ACKTRAIL_KEY_MAPPINGS={topic}=murmur2 (or crc32), then acktrail expand audit"
        )
    if event["status"] == ExpansionStatus.SETTLING:
        settles_at = event["settles_at"]
        until = "every broker lists the partitions" if settles_at is None else instant_text(_ms(settles_at))
        text = f"the expansion of {topic!r} to {event['new_count']} partitions is settling: observed too early"
        raise RetryableError(text, hint=f"observe and audit after {until}, then try again")
    following = (row for row in rows if row["topic_id"] == event["topic_id"] and row["sequence"] > event["sequence"])
    after = min(following, key=lambda row: row["sequence"], default=None)
    return {**event, "next_event": None if after is None else after["event_id"]}


def _ms(instant: dt.datetime) -> int:
    return (instant - _EPOCH) // _MS


class _Scope:
    """Which offsets to read."""

    def __init__(self, stored: Tables, admin: ShareGroupAdmin, event: _Row) -> None:
        self._event = event
        self._cluster_id = admin.cluster_id
        own = {"cluster_id": admin.cluster_id, "event_id": [each for each in _events(event) if each is not None]}
        rows = stored.rows("expansion_fences", own)
        self.fences: dict[int, _Row] = {r["partition"]: r for r in rows if r["event_id"] == event["event_id"]}
        self._next = {row["partition"]: row["fence_low"] for row in rows if row["event_id"] == event["next_event"]}
        every = [TopicPartition(topic=event["topic"], partition=each) for each in range(event["new_count"])]
        self._logs = {log.partition: log for log in admin.list_offsets(every)}
        settles = _ms(event["settles_at"])
        later = 2 * settles - _ms(event["first_seen_new_at"])
        sources, made = every[: event["old_count"]], every[event["old_count"] :]
        at = [*admin.offsets_at(sources, later), *admin.offsets_at(made, settles)]
        self.ends: dict[int, int] = {each.partition: self._end(each.partition, each.offset) for each in at}

    def _end(self, partition: int, at: int | None) -> int:
        log = self._log(partition)
        stable = log.last_stable_offset or 0
        high = self.fences.get(partition, {}).get("fence_high") or 0
        limits = [stable, self._next.get(partition)]
        return min(max(stable if at is None else at, high), *(limit for limit in limits if limit is not None))

    def _log(self, partition: int) -> LogOffsets:
        log = self._logs[partition]
        if log.error_code != NONE:
            raise error_for(log.error_code, None, operation="READ", kind="topic", name=log.topic)
        return log

    def stretches(self, kafka: KafkaConfig) -> list[KeyStretch]:
        """In the order of partitions and offsets; nothing of a source without a low fence."""
        found: list[KeyStretch] = []
        for partition, end in sorted(self.ends.items()):
            fence = self.fences.get(partition)
            first = 0 if partition >= self._event["old_count"] else None if fence is None else fence["fence_low"]
            if first is None:
                continue
            before = min(first, _BEFORE)
            last = max(end, min(first, self._log(partition).last_stable_offset or 0))
            if first - before >= last:
                continue
            whole = KeyStretch(
                kafka=kafka,
                cluster_id=self._cluster_id,
                topic=self._event["topic"],
                topic_id=self._event["topic_id"],
                partition=partition,
                first_offset=first,
                end_offset=last,
                old_count=self._event["old_count"],
                new_count=self._event["new_count"],
                mapping=KeyMapping(self._event["key_mapping"]),
            )
            found += [
                replace(
                    whole, first_offset=at, end_offset=min(at + _AT_ONCE, last), before=before if at == first else 0
                )
                for at in range(first, max(last, first + 1), _AT_ONCE)
            ]
        return found


def _events(event: _Row) -> tuple[str | None, ...]:
    return event["event_id"], event["next_event"]
