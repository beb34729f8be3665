"""The keys of the records around an expansion, read by executors: exact fences, and the keys at risk of each verdict.

Of each source the records are read from where the group stood that is furthest behind, and at least some below the low
fence for the newest one there, up to as long after the high fence as producers had to settle; of each new partition
from its beginning up to then. Nothing is read beyond an open transaction, and records of aborted transactions do not
count. Keys stay in memory: tables get their digests.

What they show becomes columns of ``expansion_fences`` and of ``expansion_verdicts``.

An executor hashes the keys of a stretch of a log, many at once, as producers compute it to choose partitions. A key
whose hash modulo the old count is the partition, and modulo the new one is not, was written with the old count; the
other way round with the new one. Where both are, the key did not move; where neither is, the producer knew another
count or chooses partitions in another way.

Example, partition 0 from 2 to 4: a key with hash 6 is there only by the old count (6 mod 4 is 2), one with hash 8 by
both, and one with hash 3 by neither.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import KafkaConfig
from acktrail.errors import ForeignCluster, NotAuthorized
from acktrail.format.columns.binary_column import Int64Array, binary_column
from acktrail.format.columns.decoding.batch_columns import batch_columns, between
from acktrail.format.columns.schemas.table_schemas import BINARY, INT32, INT64, TABLES, schema
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import NONE, error_for
from acktrail.kafka.describe_configs import compacted_topics
from acktrail.kafka.descriptions import LogStretch, TopicPartition
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic
from acktrail.tables.delta.store import Tables
from acktrail.view.wording import counted
from acktrail_expansion import FENCES, STEP, VERDICTS
from acktrail_expansion.ordering.order import KeyMapping
from acktrail_jobs.frames import JobSession, collected_pieces, list_columns, one_row, rows_in
from acktrail_jobs.pieces import pieces_of

MOST_NAMED: Final = 1_000
"""Keys of one verdict that are named by their digests."""
_SUMMED: Final = ("late_records", "elsewhere_records", "pruned")
_UNREAD: Final = {"last_record": -1, **dict.fromkeys(_SUMMED, 0)}
_AT_ONCE: Final = 200_000
"""Offsets of one stretch: the keys that an executor holds at once."""
_BELOW: Final = 1_000
"""Offsets below a low fence that are looked through for the newest record."""
_AT_LEAST: Final = 100_000
"""Offsets from a low fence on, or from the beginning of a new partition, that are read however old they are."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_READ: Final = "READ"
_Row = dict[str, Any]
ANY_PARTITION: Final = -1
"""In place of a hash: the producer may choose each partition."""
_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD: Final = np.dtype([("word", "<u4")])
_POSITIVE: Final = 0x7FFFFFFF
OLD: Final = "old"
NEW: Final = "new"
MOVED_KEYS: Final = schema((BINARY, "key"), (INT32, "partition"), (INT64, "offset"))
"""A key, and its last record in a partition by the old count, or its first one by the new count."""
STRETCH_COUNTS: Final = schema(
    (INT32, "partition"), (INT64, "last_record", "late_records", "elsewhere_records", "pruned")
)
"""One stretch. `last_record`: its newest one below the low fence, or by the old count (-1: none). `late_records`: by
the old count from the high fence on. `elsewhere_records`, `pruned`: from the low fence on, where neither count puts the
key, and those that are gone."""
FOUND_KEYS: Final = list_columns(counts=STRETCH_COUNTS, old=MOVED_KEYS, new=MOVED_KEYS)
"""What is found in a stretch: its counts, and the keys by the old count and by the new one."""
_RECORDS: Final = schema((BINARY, "key"), (INT64, "offset"))


def read_keys(kafka: KafkaConfig, stored: Tables, spark: JobSession, event: _Row, *, stores: bool = True) -> pa.Table:
    """Read the keys around `event` (the newest row of ``partition_expansions`` of its topic, settled, with a known key
    mapping), put what they show into its rows of ``expansion_fences`` if it `stores`, and give the keys with records of
    both counts (``keys_of_both``).

    Raises:
        NotAuthorized: READ on the topic. ForeignCluster: the topic was recreated. LogChanged, RetryableError: the topic
            changed; read again. ConcurrentCommit: an audit of later looks wrote meanwhile; check again.
    """
    topic, own = event["topic"], {"event_id": event["event_id"]}
    step = stored.transaction_version(FENCES, STEP)
    fences = {row["partition"]: row for row in stored.rows(FENCES, own)}
    with ShareGroupAdmin(kafka) as admin:
        operations = admin.rights((), [topic]).topics[topic]
        if operations is not None and _READ not in operations:
            raise NotAuthorized(_READ, "the topic")
        compacted, ends = compacted_topics(client_of(admin), [topic])[topic], _ends(admin, event, fences)
    stood = _furthest_behind(stored.rows(VERDICTS, own))
    stretches = list(_stretches(kafka, event, fences, ends, stood))
    doing(f"reading the keys at {counted(sum(map(_offsets, stretches)), 'offset')}")
    pieces = pieces_of(stretches, _offsets)
    found = collected_pieces(spark, "find keys of both partition counts", pieces, find_moves, FOUND_KEYS)
    rows = fences_by_keys(fences.values(), ends, rows_in(found, "counts"), is_compacted=compacted)
    if stores:
        _put(stored, FENCES, event["event_id"], rows, step)
    return keys_of_both(rows_in(found, OLD), rows_in(found, NEW))


def store_keys_at_risk(stored: Tables, event_id: str, both: pa.Table) -> None:
    """Name the keys at risk of each verdict on the expansion, by digest."""
    step = stored.transaction_version(VERDICTS, STEP)
    rows = [with_keys_at_risk(row, both) for row in stored.rows(VERDICTS, {"event_id": event_id})]
    _put(stored, VERDICTS, event_id, rows, step)


def _put(stored: Tables, name: str, event_id: str, rows: Iterable[_Row], step: int | None) -> None:
    """Rows of one expansion in place of those that a table had of it at the audit `step`. Raises ConcurrentCommit: an
    audit of later looks has written since, and its rows stay."""
    others = stored.read(name, where=pc.field("event_id") != event_id)
    table = pa.concat_tables([others, pa.Table.from_pylist(list(rows), schema=TABLES[name])])
    stored.replace(name, table, expected={STEP: step})


def _offsets(stretch: KeyStretch) -> int:
    return stretch.wanted.end_offset - stretch.wanted.first_offset


def _fence(fences: Mapping[int, _Row], partition: int) -> tuple[int | None, int | None]:
    """Both ends; all records of a new partition are from after."""
    row = fences.get(partition, {"fence_low": 0, "fence_high": None})
    return row["fence_low"], row["fence_high"]


def _ends(admin: ShareGroupAdmin, event: _Row, fences: Mapping[int, _Row]) -> dict[int, int]:
    """Up to where to read each partition."""
    every = [TopicPartition(topic=event["topic"], partition=each) for each in range(event["new_count"])]
    later = 2 * (event["settles_at"] - event["first_seen_new_at"]) + event["first_seen_new_at"]
    at_ms, ends = (later - _EPOCH) // dt.timedelta(milliseconds=1), {}
    for log, at in zip(admin.list_offsets(every), admin.offsets_at(every, at_ms), strict=True):
        if log.error_code != NONE:
            raise error_for(log.error_code, None, operation=_READ, kind="topic", name=log.topic)
        stable, (low, high) = log.last_stable_offset or 0, _fence(fences, log.partition)
        wanted = stable if at.offset is None else max(at.offset, high or 0, (low or 0) + _AT_LEAST)
        ends[log.partition] = min(wanted, stable)
    return ends


def _stretches(
    kafka: KafkaConfig, event: _Row, fences: Mapping[int, _Row], ends: Mapping[int, int], stood: Mapping[int, int]
) -> Iterator[KeyStretch]:
    """In the order of partitions and offsets; nothing of a source without a low fence."""
    for partition, end in ends.items():
        low, high = _fence(fences, partition)
        if low is None:
            continue
        for at in range(max(0, min(low - _BELOW, stood.get(partition, low))), end, _AT_ONCE):
            wanted = LogStretch(
                topic=event["topic"], partition=partition, first_offset=at, end_offset=min(at + _AT_ONCE, end)
            )
            yield KeyStretch(kafka=kafka, event=event, wanted=wanted, fence_low=low, fence_high=high)


def _furthest_behind(verdicts: Iterable[_Row]) -> dict[int, int]:
    """The first open record of each source, of all groups: of several offsets the lowest comes last, and stays."""
    pairs = ((row["source_offset"], row["source_partition"]) for row in verdicts if row["source_offset"] is not None)
    return {source: offset for offset, source in sorted(pairs, reverse=True)}


def fences_by_keys(
    fences: Iterable[_Row], ends: Mapping[int, int], counts: pa.Table, *, is_compacted: bool | None
) -> Iterator[_Row]:
    """The rows of ``expansion_fences`` of one expansion, with what its keys show. `ends`: up to where each partition
    was read; `counts`: ``STRETCH_COUNTS``.

    The exact fence is one past the last record by the old count, or the low fence where none is behind it. The last
    record below it may lie lower: what follows is of transaction markers, aborted or compacted records.
    Example: low 10, high 14, records at 0 to 6 and, by the old count, at 10 and 11: exact is 12, the last record 11;
    without these two exact is 10, the last record 6.
    """
    sums = counts.group_by("partition").aggregate([("last_record", "max"), *((name, "sum") for name in _SUMMED)])
    found = {row["partition"]: row for row in sums.rename_columns(["partition", *_UNREAD]).to_pylist()}
    for fence in fences:
        read = found.get(fence["partition"], _UNREAD)
        reason = _why_not_exact(fence, read, ends[fence["partition"]], is_compacted=is_compacted)
        last = read["last_record"]
        yield fence | {
            "fence_exact": None if reason else max(fence["fence_low"], last + 1),
            "keys_read_at": dt.datetime.now(dt.UTC),
            "keys_reason": reason,
            "last_record_offset": None if last < 0 else last,
            "late_records": read["late_records"],
        }


def _why_not_exact(fence: _Row, read: Mapping[str, int], end: int, *, is_compacted: bool | None) -> str | None:
    low, elsewhere, pruned = fence["fence_low"], read["elsewhere_records"], read["pruned"]
    wrong = f"{counted(elsewhere, 'record')} where neither count puts the key"
    reasons = (
        (low is None, "the low fence is not known"),
        (elsewhere, f"{wrong}: some producers knew another count, or choose partitions in another way"),
        (pruned and read["last_record"] < low, f"gone from the start of the log: {counted(pruned, 'offset')}"),
        (end < (fence["fence_high"] or 0), f"read up to offset {end} only: an open transaction"),
        (is_compacted, "compaction removes records: later ones of the old count may be gone"),
        (is_compacted is None, "whether compaction removes records is not known (DESCRIBE_CONFIGS on the topic)"),
    )
    return next((text for applies, text in reasons if applies), None)


def keys_of_both(old: pa.Table, new: pa.Table) -> pa.Table:
    """The keys with a record by the old count and one by the new count: `key`, the last one's `partition` and `offset`,
    and the first one's `partition_new` and `offset_new`. Of `old`, `new`: ``MOVED_KEYS``."""
    return one_row_a_key(old, OLD).join(one_row_a_key(new, NEW), keys="key", join_type="inner", right_suffix="_new")


def keys_at_risk(row: Mapping[str, Any], both: pa.Table) -> list[_Row]:
    """Rows of `both` (``keys_of_both``) about one row of ``expansion_verdicts`` that names an open record: keys with a
    record in its source at or above `source_offset`, and one in the destination."""
    is_own = pc.and_(
        pc.equal(both["partition"], row["source_partition"]), pc.equal(both["partition_new"], row["partition"])
    )
    return both.filter(pc.and_(is_own, pc.greater_equal(both["offset"], row["source_offset"]))).to_pylist()


def with_keys_at_risk(row: _Row, both: pa.Table) -> _Row:
    """A row of ``expansion_verdicts`` with its keys at risk, by digest; unchanged where no open record is known."""
    if row["source_offset"] is None:
        return row
    found = keys_at_risk(row, both)
    named = sorted((hashlib.sha256(each["key"]).hexdigest(), each["offset"], each["offset_new"]) for each in found)
    names = ("digest", "last_old_offset", "first_new_offset")
    keys = [dict(zip(names, each, strict=True)) for each in named[:MOST_NAMED]]
    return row | {"keys_at_risk": len(found), "keys": keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStretch:
    """Offsets to read around `event`, a row of ``partition_expansions``. `fence_low`: records of the partition below it
    are from before; of a new partition 0. `fence_high`: from there on none by the old count is expected; None: not
    known."""

    kafka: KafkaConfig = field(repr=False)
    event: Mapping[str, Any]
    wanted: LogStretch
    fence_low: int
    fence_high: int | None


def find_moves(share: Iterable[KeyStretch]) -> Iterator[pa.Table]:
    """Rows of ``FOUND_KEYS`` for each stretch. Raises ForeignCluster, and as ``LogReader.read``."""
    for stretch in share:
        yield from moves_in(stretch, _parts(stretch))


def _parts(stretch: KeyStretch) -> Iterator[pa.Table | PrunedOffsets]:
    """The records, without those of aborted transactions, and what was pruned. Raises ForeignCluster unless the topic
    is that of the expansion."""
    wanted, event = stretch.wanted, stretch.event
    with ShareGroupAdmin(stretch.kafka) as admin:
        topic = StateTopic(admin, wanted.topic)
        if (topic.cluster_id, topic.is_present and topic.topic_id) != (event["cluster_id"], event["topic_id"]):
            raise ForeignCluster(
                f"{wanted.topic} was deleted or recreated, or the expansion belongs to another cluster",
                hint="run `acktrail expand check` again: offsets of one topic have no meaning in another",
            )
        for part in LogReader(topic).read({wanted.partition: (wanted.first_offset, wanted.end_offset)}):
            if isinstance(part, PrunedOffsets):
                yield part
            else:
                yield between(batch_columns(part.batches), part.first_offset, part.end_offset)


def moves_in(stretch: KeyStretch, parts: Iterable[pa.Table | PrunedOffsets]) -> Iterator[pa.Table]:
    """The keys of `parts`, the records of `stretch` in their order, and what is gone."""
    pieces, pruned = [_RECORDS.empty_table()], 0
    for part in parts:
        if isinstance(part, PrunedOffsets):
            pruned += max(0, part.last_offset + 1 - max(part.first_offset, stretch.fence_low))
        else:
            pieces.append(part.select(_RECORDS.names).cast(_RECORDS))
    yield from _judged(stretch, pa.concat_tables(pieces), pruned)


def _judged(stretch: KeyStretch, rows: pa.Table, pruned: int) -> Iterator[pa.Table]:
    event, number, offsets = stretch.event, stretch.wanted.partition, rows["offset"].to_numpy()
    mapping = KeyMapping(event["key_mapping"])
    hashes = np.concatenate([hashes_of_keys(mapping, chunk) for chunk in rows["key"].chunks])
    has_key, is_after = hashes != ANY_PARTITION, offsets >= stretch.fence_low
    by_old, by_new = (has_key & (hashes % event[name] == number) for name in ("old_count", "new_count"))
    old = by_old & ~by_new
    is_late = offsets >= (np.inf if stretch.fence_high is None else stretch.fence_high)
    counts = {
        "partition": number,
        "last_record": int(offsets[old | ~is_after].max(initial=-1)),
        "late_records": int(np.count_nonzero(old & is_late)),
        "elsewhere_records": int(np.count_nonzero(has_key & ~by_old & ~by_new & is_after)),
        "pruned": pruned,
    }
    rows = rows.append_column("partition", pa.repeat(pa.scalar(number, INT32), len(offsets)))
    keys = {
        kind: one_row_a_key(rows.filter(pa.array(chosen)), kind).select(MOVED_KEYS.names)
        for kind, chosen in ((OLD, old), (NEW, by_new & ~by_old & is_after))
    }
    yield one_row(FOUND_KEYS, counts=pa.Table.from_pylist([counts], schema=STRETCH_COUNTS), **keys)


def one_row_a_key(rows: pa.Table, kind: str) -> pa.Table:
    """The last record of each key by the old count, the first by the new one; other columns are part of the key."""
    which = "max" if kind == OLD else "min"
    names = [name for name in rows.column_names if name != "offset"]
    found = rows.group_by(names, use_threads=False).aggregate([("offset", which)])
    return found.rename_columns([{f"offset_{which}": "offset"}.get(name, name) for name in found.column_names])


def hashes_of_keys(mapping: KeyMapping, keys: pa.BinaryArray) -> Int64Array:
    """The positive hash of each key, of shape (n,); modulo the partition count it is the partition. ``ANY_PARTITION``:
    no key, and librdkafka's empty key. `mapping` is a known one."""
    if mapping is KeyMapping.MURMUR2:
        return _murmur2(keys)
    return np.array([zlib.crc32(key) if key else ANY_PARTITION for key in keys.to_pylist()], np.int64)


def _murmur2(keys: pa.BinaryArray) -> Int64Array:
    """Word by word of the keys that have one more. Three zeros behind each key fill the word at its end."""
    padded = binary_column(pc.binary_join_element_wise(keys, b"\0\0\0", b""))
    lengths, at = padded.lengths - 3, 0
    hashed, rows = _SEED ^ lengths.astype(np.uint32), np.flatnonzero(lengths > 0)
    while len(rows):
        word = padded.gather(padded.starts[rows] + at, _WORD)["word"].astype(np.uint32)
        at += 4
        mixed = word * _M
        mixed = (mixed ^ mixed >> np.uint32(24)) * _M
        is_whole = lengths[rows] >= at
        hashed[rows] = np.where(is_whole, hashed[rows] * _M ^ mixed, (hashed[rows] ^ word) * _M)
        rows = rows[lengths[rows] > at]
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    return np.where(lengths < 0, ANY_PARTITION, (hashed & _POSITIVE).astype(np.int64))
