"""What the clusters show of how a topic's offsets on the source lie on the target: for each way of translation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from acktrail.change.cluster import Cluster
from acktrail.errors import AcktrailError, ConfigurationError, ForeignCluster
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import LogStretch
from acktrail_plugins.migration.migration_request import Migration, TranslationWay
from acktrail_plugins.migration.mirrored_offsets import (
    OffsetSync,
    TranslatedOffset,
    checkpoints_by_part,
    decode_checkpoint,
    decode_offset_sync,
    translate,
    valid_syncs,
)

if TYPE_CHECKING:
    from acktrail.kafka.log_reader import TopicRecord

_NEAR: Final = 100
"""Offsets on each side of one that is translated, whose records are looked at."""
RecordT = TypeVar("RecordT")


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


def _different(migration: Migration, offsets: Sequence[SourceOffset], source: Cluster, target: Cluster) -> Translations:
    """Those of `offsets` near which a record of the target is another than the source's at the same offset. What is not
    on the target yet, or not on the source any more, cannot be compared."""
    originals = _records(source, {each: (each.topic, each.offset) for each in offsets})
    copies, found = _records(target, _there(migration, {each: each.offset for each in offsets})), Translations()
    for each in offsets:
        known = {record.offset: record for record in originals.get(each, ())}
        both = ((copy, known[copy.offset]) for copy in copies.get(each, ()) if copy.offset in known)
        odd = next((copy.offset for copy, original in both if not copy.equals(original)), None)
        if odd is not None:
            found[each] = f"offset {odd} holds other records on the two clusters: the offsets are not the same"
    return found


def _by_times(migration: Migration, offsets: Sequence[SourceOffset], source: Cluster, target: Cluster) -> Translations:
    """By the time of the first record from each offset on (of the last one before it, at the end of a log): the first
    record on the target with that time or a later one must be the copy of the first such on the source. Then both are a
    pair, as an offset sync is."""
    anchors = _nearest(source, {each: (each.topic, each.offset) for each in offsets})
    found: Translations = {each: f"the source has no record with a time near offset {each.offset}" for each in offsets}
    times = {each: anchor.timestamp_ms for each, anchor in anchors.items() if anchor.timestamp_ms is not None}
    firsts = _since(source, {each: (each.topic, ms) for each, ms in times.items()})
    copies = _since(target, _there(migration, times))
    for each in times:
        found[each] = _pair(max(each.offset, anchors[each].offset), firsts.get(each), copies.get(each))
    return found


def _there(migration: Migration, numbers: Mapping[SourceOffset, int]) -> _Places:
    return {each: (migration.target_topic(each.topic), number) for each, number in numbers.items()}


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


def _since(cluster: Cluster, times: _Places) -> dict[SourceOffset, TopicRecord]:
    """The first record at or after a time (in place of an offset), where there is one."""
    places = {}
    for each, (topic, time_ms) in times.items():
        (first,) = cluster.admin.offsets_at([TopicPartition(topic=topic, partition=each.partition)], time_ms)
        if first.offset is not None:
            places[each] = (topic, first.offset)
    return _nearest(cluster, places)


def _nearest(cluster: Cluster, places: _Places) -> dict[SourceOffset, TopicRecord]:
    """The first record from an offset on, else the last one before it, where one is near."""
    return {
        each: next((record for record in records if record.offset >= places[each][1]), records[-1])
        for each, records in _records(cluster, places).items()
        if records
    }


def _records(cluster: Cluster, places: _Places) -> dict[SourceOffset, Sequence[TopicRecord]]:
    """The records near these offsets, or near the end of the log that is closest."""
    from acktrail.kafka.log_reader import read_records

    partitions = {each: TopicPartition(topic=topic, partition=each.partition) for each, (topic, _) in places.items()}
    logs = {(log.topic, log.partition): log for log in cluster.admin.list_offsets(sorted(set(partitions.values())))}
    stretches = {}
    for each, (topic, offset) in places.items():
        log = logs[topic, each.partition]
        start, end = log.log_start_offset, log.high_watermark
        if start is not None and end is not None:
            at = min(max(offset, start), end)
            bounds = max(start, at - _NEAR), min(end, at + _NEAR + 1)
            stretches[each] = LogStretch(
                topic=topic, partition=each.partition, first_offset=bounds[0], end_offset=bounds[1]
            )
    records = read_records(cluster.admin, stretches.values())
    return {each: records[stretch] for each, stretch in stretches.items()}
