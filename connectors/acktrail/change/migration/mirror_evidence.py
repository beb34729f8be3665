"""What the clusters show of how a topic's offsets on the source lie on the target: for each way of translation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from acktrail.change.cluster import Cluster
from acktrail.change.request.migration_request import Migration, TranslationWay
from acktrail.errors import AcktrailError, ConfigurationError, ForeignCluster
from acktrail.model.mirrored_offsets import (
    OffsetSync,
    TranslatedOffset,
    checkpoints_by_part,
    translate,
    valid_syncs,
)

if TYPE_CHECKING:
    from acktrail.kafka.log_reader import TopicRecord

_LOOK_BACK: Final = 100
"""Offsets before the end of a log in which its last record is looked for: some may be control records or gaps."""
RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceOffset:
    """An offset of a source partition that is to be translated."""

    topic: str
    partition: int
    offset: int


Translations = dict[SourceOffset, TranslatedOffset | str]
"""Where each offset is on the target, or why that is not known."""


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
            return _Comparison(migration, source, target).by_timestamp(wanted)
        case TranslationWay.SAME:
            found: Translations = {each: TranslatedOffset(offset=each.offset, passed_most=0) for each in wanted}
            return found if source is None else found | _Comparison(migration, source, target).different(wanted)


def check_source(source: Cluster, cluster_id: str) -> None:
    """Raise ForeignCluster unless the source cluster is the one that the tables were exported from."""
    if source.admin.cluster_id != cluster_id:
        text = f"the source is cluster {source.admin.cluster_id}, the tables are of cluster {cluster_id}"
        raise ForeignCluster(text, hint="name the brokers that were exported, or leave --ask-source")


def _by_mirror_topics(
    migration: Migration, offsets: Sequence[SourceOffset], source: Cluster | None, target: Cluster
) -> Translations:
    from acktrail.format.wire.group_record import decode_checkpoint, decode_offset_sync

    clusters = [target] if source is None else [target, source]
    syncs = valid_syncs(_mirror_records(migration.offset_syncs, decode_offset_sync, clusters))
    checkpoints = checkpoints_by_part(_mirror_records(migration.checkpoints, decode_checkpoint, clusters))
    found: Translations = {}
    for each in offsets:
        own = syncs.get((each.topic, each.partition), ())
        others = checkpoints.get((migration.target_topic(each.topic), each.partition), ())
        found[each] = translate(each.offset, own, others) or _no_pair(each, own)
    return found


def _no_pair(each: SourceOffset, syncs: Sequence[OffsetSync]) -> str:
    if not syncs:
        return f"MirrorMaker wrote nothing about {each.topic}:{each.partition} that reaches offset {each.offset}"
    return (
        f"MirrorMaker's oldest known pair of {each.topic}:{each.partition} is at offset {syncs[0].upstream_offset}, "
        f"after the start offset {each.offset}"
    )


def _mirror_records(
    topic: str | None,
    decode: Callable[[bytes | None, bytes | None], RecordT],
    clusters: Sequence[Cluster],
) -> Iterator[RecordT]:
    """The records of one of MirrorMaker's topics, on the first cluster that has it; none when it is not named."""
    from acktrail.kafka.log_reader import read_topic

    if topic is None:
        return
    found = (read_topic(cluster.admin, topic) for cluster in clusters)
    records = next((each for each in found if each is not None), None)
    if records is None:
        where = "on neither cluster" if len(clusters) > 1 else "not on the target"
        hint = "with --ask-source it is looked for on the source as well"
        raise ConfigurationError(f"there is no topic {topic!r}: it is {where}", hint=hint)
    for record in records:
        try:
            if record.value is not None:  # null: an operator's deletion
                yield decode(record.key, record.value)
        except AcktrailError as error:
            text = f"topic {topic!r}, offset {record.offset}: {error.message}"
            raise ConfigurationError(text, hint="is it MirrorMaker 2's topic of this kind?") from error


class _Comparison:
    """Records of both clusters, side by side."""

    def __init__(self, migration: Migration, source: Cluster, target: Cluster) -> None:
        self._migration, self._source, self._target = migration, source, target

    def different(self, offsets: Sequence[SourceOffset]) -> Translations:
        """Those of `offsets` where the record on the target is another than on the source. What is not on the target
        yet, or not on the source any more, cannot be compared."""
        anchors = self._anchors(offsets)
        places = {each: (each.topic, each.partition, anchor.offset) for each, anchor in anchors.items()}
        copies = _records_at(self._target, {each: self._there(*place) for each, place in places.items()})
        return {
            each: f"offset {copy.offset} holds other records on the two clusters: the offsets are not the same"
            for each, copy in copies.items()
            if copy.offset == anchors[each].offset and not copy.equals(anchors[each])
        }

    def by_timestamp(self, offsets: Sequence[SourceOffset]) -> Translations:
        """By the time of the first record from each offset on (of the last one before it, at the end of a log): the
        first record on the target with that time or a later one must be the copy of the first such on the source. Then
        both are a pair, as an offset sync is."""
        anchors = self._anchors(offsets)
        found: Translations = {
            each: f"the source has no record with a time at offset {each.offset}, nor in the {_LOOK_BACK} before it"
            for each in offsets
        }
        times = {each: anchor.timestamp_ms for each, anchor in anchors.items() if anchor.timestamp_ms is not None}
        here = _at_time(self._source, {each: (each.topic, each.partition, ms) for each, ms in times.items()})
        there = _at_time(
            self._target, {each: self._there(each.topic, each.partition, ms) for each, ms in times.items()}
        )
        firsts = _records_at(self._source, {each: (each.topic, each.partition, at) for each, at in here.items()})
        copies = _records_at(
            self._target, {each: self._there(each.topic, each.partition, at) for each, at in there.items()}
        )
        for each in times:
            first, copy = firsts.get(each), copies.get(each)
            found[each] = _pair(max(each.offset, anchors[each].offset), first, copy)
        return found

    def _there(self, topic: str, partition: int, number: int) -> tuple[str, int, int]:
        return self._migration.target_topic(topic), partition, number

    def _anchors(self, offsets: Sequence[SourceOffset]) -> dict[SourceOffset, TopicRecord]:
        """The first record of the source at or after each offset, else the last one before it."""
        from acktrail.kafka.descriptions import TopicPartition
        from acktrail.kafka.log_reader import read_records
        from acktrail.kafka.logs import LogStretch

        partitions = [TopicPartition(topic=each.topic, partition=each.partition) for each in offsets]
        logs = {(log.topic, log.partition): log for log in self._source.admin.list_offsets(partitions)}
        ahead, behind = {}, {}
        for each in offsets:
            log = logs[each.topic, each.partition]
            start, end = log.log_start_offset, log.high_watermark
            if start is None or end is None:
                continue
            at = max(start, each.offset)
            whole = LogStretch(topic=each.topic, partition=each.partition, first_offset=start, end_offset=end)
            ahead[each] = replace(whole, first_offset=at)
            behind[each] = replace(whole, first_offset=max(start, at - _LOOK_BACK), end_offset=min(at, end))
        found = read_records(self._source.admin, ahead.values(), most=1)
        before = read_records(self._source.admin, [behind[each] for each in ahead if not found[ahead[each]]])
        anchors = {}
        for each, stretch in ahead.items():
            own = found[stretch][:1] or before[behind[each]][-1:]
            if own:
                anchors[each] = own[0]
        return anchors


def _at_time(cluster: Cluster, wanted: Mapping[SourceOffset, tuple[str, int, int]]) -> dict[SourceOffset, int]:
    """The first offset at or after a time, where there is one. One question for each time."""
    from acktrail.kafka.descriptions import TopicPartition

    by_time: dict[int, dict[TopicPartition, list[SourceOffset]]] = defaultdict(lambda: defaultdict(list))
    for each, (topic, partition, time) in wanted.items():
        by_time[time][TopicPartition(topic=topic, partition=partition)].append(each)
    found: dict[SourceOffset, int] = {}
    for time, places in by_time.items():
        for answer in cluster.admin.offsets_at(places, time):
            if answer.offset is not None:
                own = places[TopicPartition(topic=answer.topic, partition=answer.partition)]
                found |= dict.fromkeys(own, answer.offset)
    return found


def _records_at(
    cluster: Cluster, wanted: Mapping[SourceOffset, tuple[str, int, int]]
) -> dict[SourceOffset, TopicRecord]:
    """The first record from an offset on, where there is one."""
    from acktrail.kafka.descriptions import TopicPartition
    from acktrail.kafka.log_reader import read_records
    from acktrail.kafka.logs import LogStretch

    partitions = {TopicPartition(topic=topic, partition=index) for topic, index, _ in wanted.values()}
    logs = {(log.topic, log.partition): log for log in cluster.admin.list_offsets(sorted(partitions))}
    stretches = {}
    for each, (topic, index, at) in wanted.items():
        log = logs[topic, index]
        if log.high_watermark is not None:
            first = max(at, log.log_start_offset or 0)
            end = log.high_watermark
            stretches[each] = LogStretch(topic=topic, partition=index, first_offset=first, end_offset=end)
    records = read_records(cluster.admin, stretches.values(), most=1)
    return {each: records[stretch][0] for each, stretch in stretches.items() if records[stretch]}


def _pair(offset: int, first: TopicRecord | None, copy: TopicRecord | None) -> TranslatedOffset | str:
    """The translation of `offset` by a record of the source, not after it, and its copy, if it is one."""
    if first is None:
        return "its record was pruned on the source while it was looked at"
    if copy is None:
        return f"the target has no record as late as offset {first.offset} of the source: it is not mirrored that far"
    if not first.equals(copy):
        return (
            f"the record at offset {copy.offset} of the target is no copy of the one at offset {first.offset} of the "
            "source (time, key, value): times cannot translate this topic"
        )
    sync = OffsetSync(topic="", partition=0, upstream_offset=first.offset, downstream_offset=copy.offset)
    return translate(offset, [sync]) or f"the first record of that time is at offset {first.offset}, after it"
