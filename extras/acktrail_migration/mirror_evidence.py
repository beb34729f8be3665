"""What the clusters show of how a topic's offsets on the source lie on the target: for each way of translation.

A mirror writes records in the order in which it read them; it may leave some out (filters, aborted transactions), and
the target's log may hold others in between. So a pair says nothing exact about other records, only this: what comes
after a record on the source comes after it on the target.

MirrorMaker 2 has two topics for this. ``mm2-offset-syncs.<cluster>.internal`` has
``OffsetSync``: the key is string topic and int32 partition, the value int64 source offset and int64 target offset,
without a version. ``<cluster>.checkpoints.internal`` has ``Checkpoint``: the key is string group, string topic and
int32 partition, the value an int16 version, which is 0, then int64 source offset, int64 target offset and string
metadata. Strings are int16 length and UTF-8, none is null. Bytes after the message are skipped, as Kafka does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from acktrail.change.cluster import Cluster
from acktrail.errors import (
    AcktrailError,
    ConfigurationError,
    ForeignCluster,
    MalformedRecord,
    UnknownName,
    UnsupportedRecord,
)
from acktrail.format.wire.primitives import INT16, INT32, INT64, Reader
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import LogStretch, TopicPartition
from acktrail.kafka.log_reader import LogReader, StateTopic
from acktrail_migration.migration_kind import Migration, TranslationWay

TopicPart = tuple[str, int]
"""Topic and partition."""
_PATIENCE_S: Final = 30.0
_NEAR: Final = 100
"""Offsets on each side of one that is translated, whose records are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPair:
    """An offset sync: the record at `upstream_offset` of a source partition was written at `downstream_offset` of its
    mirror. `topic` is the source's name. With a `group_id` a checkpoint: what this consumer group had committed on the
    source, and MirrorMaker's translation of it; `topic` is the target's name then."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """An offset of the target at or before the mirror of every source record from the translated offset on.

    `passed_most`: of the source records before that, at most this number lie at or after it on the target and are
    delivered again; 0: it is exact. None: not known.
    """

    offset: int
    passed_most: int | None


def valid_syncs(records: Iterable[MirrorPair]) -> dict[TopicPart, tuple[MirrorPair, ...]]:
    """The syncs of each source partition that hold together, ascending. `records` in the order of their log: where one
    goes back on either side (a topic was recreated, the mirror began again), all before it are dropped
    (MirrorMaker 2: ``OffsetSyncStore``, which looks at the source's side)."""
    found: dict[TopicPart, list[MirrorPair]] = defaultdict(list)
    for sync in records:
        own = found[sync.topic, sync.partition]
        if min(sync.upstream_offset, sync.downstream_offset) < 0 or (own and own[-1] == sync):
            continue
        if own and not (
            own[-1].upstream_offset < sync.upstream_offset and own[-1].downstream_offset < sync.downstream_offset
        ):
            own.clear()
        own.append(sync)
    return {part: tuple(own) for part, own in found.items()}


def checkpoints_by_part(records: Iterable[MirrorPair]) -> dict[TopicPart, tuple[MirrorPair, ...]]:
    """The newest checkpoint of each consumer group, by the target's topic and partition."""
    newest = {(one.group_id, one.topic, one.partition): one for one in records}
    found: dict[TopicPart, list[MirrorPair]] = defaultdict(list)
    for one in newest.values():
        if min(one.upstream_offset, one.downstream_offset) >= 0:
            found[one.topic, one.partition].append(one)
    return {part: tuple(own) for part, own in found.items()}


def translate(
    offset: int, syncs: Sequence[MirrorPair], checkpoints: Iterable[MirrorPair] = ()
) -> TranslatedOffset | None:
    """Where source offset `offset` is on the target at the latest; None: no pair is at or below it.

    The greatest sync at or below `offset` counts (MirrorMaker 2: ``OffsetSyncStore.translateDownstream``): its own
    record is at the sync's target offset, every later one at least one further; no more is known. A checkpoint of any
    consumer group at or below `offset` may lie further on: nothing from its source offset on is before its target
    offset. One that contradicts a sync is ignored. Monotone in `offset`. Cost: a binary search in `syncs`, which
    are `valid_syncs`, and one in it for each checkpoint.
    """
    place = bisect_right(syncs, offset, key=attrgetter("upstream_offset"))
    best: TranslatedOffset | None = None
    if place:
        sync = syncs[place - 1]
        ahead = offset - sync.upstream_offset
        best = TranslatedOffset(offset=sync.downstream_offset + min(ahead, 1), passed_most=max(0, ahead - 1))
    further = [one.downstream_offset for one in checkpoints if one.upstream_offset <= offset and _agrees(one, syncs)]
    if further and (best is None or max(further) > best.offset):
        return TranslatedOffset(offset=max(further), passed_most=None if best is None else best.passed_most)
    return best


def _agrees(checkpoint: MirrorPair, syncs: Sequence[MirrorPair]) -> bool:
    """Whether no sync from the checkpoint's source offset on has a lower target offset."""
    place = bisect_right(syncs, checkpoint.upstream_offset - 1, key=attrgetter("upstream_offset"))
    return place == len(syncs) or checkpoint.downstream_offset <= syncs[place].downstream_offset


def decode_pair(key: bytes | None, value: bytes | None, *, is_checkpoint: bool) -> MirrorPair:
    """The offset sync, or the checkpoint, in a key and a value. Raises MalformedRecord, UnsupportedRecord."""
    for part, data in (("key", key), ("value", value)):
        if data is None:
            raise MalformedRecord(f"null {part}", part=part, position=0)
    keys, values = Reader(key or b"", "key"), Reader(value or b"", "value")
    version = values.integer(INT16) if is_checkpoint else 0
    if version != 0:
        raise UnsupportedRecord("unknown checkpoint version", part="value", number=version)
    return MirrorPair(
        group_id=keys.string() if is_checkpoint else None,
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceOffset:
    """An offset of a source partition that is to be translated."""

    topic: str
    partition: int
    offset: int


Translations = dict[SourceOffset, TranslatedOffset | str]
"""Where each offset is on the target, or why that is not known."""
_Places = Mapping[SourceOffset, tuple[str, int]]
"""For each offset that is translated: a topic, and an offset in its partition with the same number."""


def find_translations(
    migration: Migration, offsets: Iterable[SourceOffset], *, source: Cluster | None, target: Cluster
) -> Translations:
    """Where each of `offsets` is on the target. Nothing is changed on either cluster.

    Raises:
        ConfigurationError: MirrorMaker's topic is on neither cluster, holds something else, or a right is missing.
        Unreachable, RetryableError: a cluster does not answer.
    """
    wanted = sorted(set(offsets))
    match migration.way:
        case TranslationWay.MM2:
            return _by_mirror_topics(migration, wanted, source, target)
        case TranslationWay.TIMESTAMP:
            assert source is not None
            return _by_times(migration, wanted, source, target)
        case TranslationWay.SAME:
            found: Translations = {each: TranslatedOffset(offset=each.offset, passed_most=0) for each in wanted}
            return found if source is None else found | _different(migration, wanted, source, target)


def check_source(source: Cluster, cluster_id: str) -> None:
    """Raise ForeignCluster unless the source cluster is the one that the tables were exported from."""
    if source.admin.cluster_id != cluster_id:
        text = f"the source is cluster {source.admin.cluster_id}, the tables are of cluster {cluster_id}"
        raise ForeignCluster(text, hint="name the brokers that were exported, or leave --ask-source")


def _by_mirror_topics(
    migration: Migration, offsets: Sequence[SourceOffset], source: Cluster | None, target: Cluster
) -> Translations:
    clusters = [target] if source is None else [target, source]
    syncs = valid_syncs(_mirror_pairs(migration.offset_syncs, clusters))
    checkpoints = checkpoints_by_part(_mirror_pairs(migration.checkpoints, clusters, is_checkpoint=True))
    found: Translations = {}
    for each in offsets:
        own = syncs.get((each.topic, each.partition), ())
        others = checkpoints.get((migration.target_topic(each.topic), each.partition), ())
        found[each] = translate(each.offset, own, others) or _no_pair(each, own)
    return found


def _no_pair(each: SourceOffset, syncs: Sequence[MirrorPair]) -> str:
    if not syncs:
        return f"MirrorMaker wrote nothing about {each.topic}:{each.partition} that reaches offset {each.offset}"
    return (
        f"MirrorMaker's oldest known pair of {each.topic}:{each.partition} is at offset {syncs[0].upstream_offset}, "
        f"after the start offset {each.offset}"
    )


def _mirror_pairs(
    topic: str | None, clusters: Sequence[Cluster], *, is_checkpoint: bool = False
) -> Iterator[MirrorPair]:
    """The records of one of MirrorMaker's topics, on the first cluster that has it; none when it is not named."""
    if topic is None:
        return
    found = (_whole_topic(cluster.admin, topic) for cluster in clusters)
    records = next((each for each in found if each is not None), None)
    if records is None:
        where = "on neither cluster" if len(clusters) > 1 else "not on the target"
        hint = "with --ask-source it is looked for on the source as well"
        raise ConfigurationError(f"there is no topic {topic!r}: it is {where}", hint=hint)
    for record in records:
        try:
            if record.value is not None:  # null: an operator's deletion
                yield decode_pair(record.key, record.value, is_checkpoint=is_checkpoint)
        except AcktrailError as error:
            text = f"topic {topic!r}, offset {record.offset}: {error.message}"
            raise ConfigurationError(
                text, hint="check that it is the topic of MirrorMaker 2 for this purpose"
            ) from error


def _different(migration: Migration, offsets: Sequence[SourceOffset], source: Cluster, target: Cluster) -> Translations:
    """Those of `offsets` near which a record of the target is another than the source's at the same offset. What is not
    on the target yet, or not on the source any more, cannot be compared."""
    originals = _records(source, {each: (each.topic, each.offset) for each in offsets})
    copies, found = _records(target, _there(migration, {each: each.offset for each in offsets})), Translations()
    for each in offsets:
        known = {record.offset: record for record in originals.get(each, ())}
        both = ((copy, known[copy.offset]) for copy in copies.get(each, ()) if copy.offset in known)
        odd = next((copy.offset for copy, original in both if _kept(copy) != _kept(original)), None)
        if odd is not None:
            found[each] = f"offset {odd} holds other records on the two clusters: the offsets are not the same"
    return found


def _by_times(migration: Migration, offsets: Sequence[SourceOffset], source: Cluster, target: Cluster) -> Translations:
    """By the time of the first record from each offset on (of the last one before it, at the end of a log): the first
    record on the target with that time or a later one must be the copy of the first such on the source. Then both are a
    pair, as an offset sync is."""
    anchors = _nearest(source, {each: (each.topic, each.offset) for each in offsets})
    found: Translations = {each: f"the source has no record with a time near offset {each.offset}" for each in offsets}
    times = {each: anchor.timestamp_ms for each, anchor in anchors.items() if anchor.timestamp_ms >= 0}
    firsts = _since(source, {each: (each.topic, ms) for each, ms in times.items()})
    copies = _since(target, _there(migration, times))
    for each in times:
        found[each] = _pair(max(each.offset, anchors[each].offset), firsts.get(each), copies.get(each))
    return found


def _there(migration: Migration, numbers: Mapping[SourceOffset, int]) -> _Places:
    return {each: (migration.target_topic(each.topic), number) for each, number in numbers.items()}


def _pair(offset: int, first: RawRecord | None, copy: RawRecord | None) -> TranslatedOffset | str:
    """The translation of `offset` by a record of the source, not after it, and its copy, if it is one."""
    if first is None:
        return "its record was pruned on the source while it was looked at"
    if copy is None:
        return f"the target has no record as late as offset {first.offset} of the source: it is not mirrored that far"
    if _kept(first) != _kept(copy):
        return (
            f"the record at offset {copy.offset} of the target is no copy of the one at offset {first.offset} of the "
            "source (time, key, value): times cannot translate this topic"
        )
    sync = MirrorPair(topic="", partition=0, upstream_offset=first.offset, downstream_offset=copy.offset)
    return translate(offset, [sync]) or f"the first record of that time is at offset {first.offset}, after it"


def _since(cluster: Cluster, times: _Places) -> dict[SourceOffset, RawRecord]:
    """The first record at or after a time (in place of an offset), where there is one."""
    places = {}
    for each, (topic, time_ms) in times.items():
        (first,) = cluster.admin.offsets_at([TopicPartition(topic=topic, partition=each.partition)], time_ms)
        if first.offset is not None:
            places[each] = (topic, first.offset)
    return _nearest(cluster, places)


def _nearest(cluster: Cluster, places: _Places) -> dict[SourceOffset, RawRecord]:
    """The first record from an offset on, else the last one before it, where one is near."""
    return {
        each: next((record for record in records if record.offset >= places[each][1]), records[-1])
        for each, records in _records(cluster, places).items()
        if records
    }


def _records(cluster: Cluster, places: _Places) -> dict[SourceOffset, Sequence[RawRecord]]:
    """The records near these offsets, or near the end of the log that is closest."""
    partitions = {each: TopicPartition(topic=topic, partition=each.partition) for each, (topic, _) in places.items()}
    logs = {(log.topic, log.partition): log for log in cluster.admin.list_offsets(sorted(set(partitions.values())))}
    stretches = {}
    for each, (topic, offset) in places.items():
        log = logs[topic, each.partition]
        start, end = log.log_start_offset, log.high_watermark
        if start is not None and end is not None:
            at = min(max(offset, start), end)
            stretches[each] = _stretch(topic, each.partition, max(start, at - _NEAR), min(end, at + _NEAR + 1))
    records = _read(cluster.admin, stretches.values())
    return {each: records[stretch] for each, stretch in stretches.items()}


def _stretch(topic: str, partition: int, first: int, end: int) -> LogStretch:
    return LogStretch(topic=topic, partition=partition, first_offset=first, end_offset=end)


def _kept(record: RawRecord) -> tuple[object, ...]:
    """What a mirror keeps of a record: time, key, value."""
    return max(-1, record.timestamp_ms), record.key, record.value


def _whole_topic(admin: ShareGroupAdmin, name: str) -> list[RawRecord] | None:
    """All records of a small topic, partition after partition, each in its order; None: there is no such topic that
    this principal may DESCRIBE (Kafka does not say which): it may be on the other cluster. Raises as `_read`."""
    if not admin.topics([name])[0].partition_count:
        return None
    logs = StateTopic(admin, name).log_offsets().items()
    records = _read(admin, [_stretch(name, n, log.log_start_offset or 0, log.high_watermark or 0) for n, log in logs])
    return [record for stretch in sorted(records) for record in records[stretch]]


def _read(admin: ShareGroupAdmin, stretches: Iterable[LogStretch]) -> dict[LogStretch, list[RawRecord]]:
    """The records in each stretch; those of open and aborted transactions are among them. What the log does not hold
    any more is left out. Stretches of one partition are read one after the other.

    Raises UnknownName (there is no such topic), NotAuthorized (READ on a topic is missing), and as `LogReader`.
    """
    found: dict[LogStretch, list[RawRecord]] = {stretch: [] for stretch in stretches}
    waiting = sorted(stretch for stretch in found if stretch.first_offset < stretch.end_offset)
    while waiting:
        name = waiting[0].topic
        now = {stretch.partition: stretch for stretch in waiting if stretch.topic == name}
        waiting = sorted({*waiting} - {*now.values()})
        topic = StateTopic(admin, name)
        if not topic.is_present:
            raise UnknownName("topic", name)
        reader = LogReader(topic, is_committed=False, patience_s=_PATIENCE_S)
        for raw in reader.records({number: (each.first_offset, each.end_offset) for number, each in now.items()}):
            found[now[raw.state_partition]].append(raw)
    return found
