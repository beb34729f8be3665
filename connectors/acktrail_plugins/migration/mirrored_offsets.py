"""Pairs of offsets that a mirror wrote down, and what follows from them for any other offset. Pure.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import INT16, INT32, INT64, Reader

CHECKPOINT_VERSION: Final = 0
TopicPart = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """The record at `upstream_offset` of a source partition was written at `downstream_offset` of its mirror
    (MirrorMaker 2: ``OffsetSync``). `topic` is the source's name."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCheckpoint:
    """A consumer group's committed offset on the source, and MirrorMaker's translation of it (``Checkpoint``). `topic`
    is the target's name."""

    group_id: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """An offset of the target at or before the mirror of every source record from the translated offset on.

    `passed_most`: of the source records before that, at most this number lie at or after it on the target and are
    delivered again; 0: it is exact. None: not known.
    """

    offset: int
    passed_most: int | None


def valid_syncs(records: Iterable[OffsetSync]) -> dict[TopicPart, tuple[OffsetSync, ...]]:
    """The syncs of each source partition that hold together, ascending. `records` in the order of their log: where one
    goes back on either side (a topic was recreated, the mirror began again), all before it are dropped
    (MirrorMaker 2: ``OffsetSyncStore``, which looks at the source's side)."""
    found: dict[TopicPart, list[OffsetSync]] = defaultdict(list)
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


def checkpoints_by_part(records: Iterable[MirrorCheckpoint]) -> dict[TopicPart, tuple[MirrorCheckpoint, ...]]:
    """The newest checkpoint of each consumer group, by the target's topic and partition."""
    newest = {(one.group_id, one.topic, one.partition): one for one in records}
    found: dict[TopicPart, list[MirrorCheckpoint]] = defaultdict(list)
    for one in newest.values():
        if min(one.upstream_offset, one.downstream_offset) >= 0:
            found[one.topic, one.partition].append(one)
    return {part: tuple(own) for part, own in found.items()}


def translate(
    offset: int, syncs: Sequence[OffsetSync], checkpoints: Iterable[MirrorCheckpoint] = ()
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


def _agrees(checkpoint: MirrorCheckpoint, syncs: Sequence[OffsetSync]) -> bool:
    """Whether no sync from the checkpoint's source offset on has a lower target offset."""
    place = bisect_right(syncs, checkpoint.upstream_offset - 1, key=attrgetter("upstream_offset"))
    return place == len(syncs) or checkpoint.downstream_offset <= syncs[place].downstream_offset


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """The offset sync encoded in a key and a value."""
    keys, values = _readers(key, value)
    return OffsetSync(
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
    )


def decode_checkpoint(key: bytes | None, value: bytes | None) -> MirrorCheckpoint:
    """The checkpoint encoded in a key and a value. Raises also UnsupportedRecord: an unknown version."""
    keys, values = _readers(key, value)
    version = values.integer(INT16)
    if version != CHECKPOINT_VERSION:
        raise UnsupportedRecord("unknown checkpoint version", part="value", number=version)
    return MirrorCheckpoint(
        group_id=keys.string(),
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
        metadata=values.string(),
    )


def _readers(key: bytes | None, value: bytes | None) -> tuple[Reader, Reader]:
    for part, data in (("key", key), ("value", value)):
        if data is None:
            raise MalformedRecord(f"null {part}", part=part, position=0)
    return Reader(key or b"", "key"), Reader(value or b"", "value")
