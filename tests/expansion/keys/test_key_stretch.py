"""Which records were written with the old count, and what that says of fences and keys: all at once as one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acktrail.broker.state.state_range import PrunedOffsets
from acktrail.config import KafkaConfig
from acktrail_expansion.keys.key_fences import fences_by_keys, keys_of_both, with_keys_at_risk
from acktrail_expansion.keys.key_stretch import COUNTS, FIND_KEYS, MOVED_KEYS, NEW, OLD, KeyStretch, moves_in
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_simulation.expansion.key_partitions import partition_of_key

Record = tuple[int, bytes | None]
"""Offset and key."""
KEYS = [None, b"", *(f"key-{number}".encode() for number in range(12))]


@st.composite
def logs(draw: st.DrawFn) -> tuple[KeyStretch, list[list[Record] | PrunedOffsets]]:
    """A stretch, and what reading it gives: runs of records in ascending offsets, and pruned ones."""
    old_count = draw(st.integers(1, 4))
    new_count = old_count + draw(st.integers(1, 5))
    low = draw(st.integers(0, 30))
    stretch = KeyStretch(
        kafka=KafkaConfig(bootstrap_servers="nowhere:1"),
        cluster_id="c1",
        topic="orders",
        topic_id="t1",
        partition=draw(st.integers(0, new_count - 1)),
        first_offset=0,
        end_offset=1_000,
        fence_low=low,
        fence_high=draw(st.none() | st.integers(low, low + 20)),
        old_count=old_count,
        new_count=new_count,
        mapping=draw(st.sampled_from([KeyMapping.MURMUR2, KeyMapping.CRC32])),
    )
    parts: list[list[Record] | PrunedOffsets] = []
    at = 0
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            size = draw(st.integers(1, 5))
            parts.append(PrunedOffsets(at, at + size - 1))
            at += size
        run: list[Record] = []
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=12)):
            run.append((at, key))
            at += draw(st.integers(1, 3))
        parts.append(run)
    return stretch, parts


def as_read(parts: Sequence[list[Record] | PrunedOffsets]) -> list[pa.Table | PrunedOffsets]:
    def table(run: Sequence[Record]) -> pa.Table:
        keys, offsets = [key for _, key in run], [at for at, _ in run]
        return pa.table({"offset": pa.array(offsets, pa.int64()), "key": pa.array(keys, pa.binary())})

    return [part if isinstance(part, PrunedOffsets) else table(part) for part in parts]


@given(logs())
def test_moved_keys_and_counts_are_those_of_the_plain_law(
    log: tuple[KeyStretch, list[list[Record] | PrunedOffsets]],
) -> None:
    """Each record alone, by ``partition_of_key`` with both counts."""
    stretch, parts = log
    found = FIND_KEYS.gathered(moves_in(stretch, as_read(parts)))

    old: dict[bytes, list[int]] = {}
    new: dict[bytes, list[int]] = {}
    elsewhere: list[int] = []
    records = [record for part in parts if isinstance(part, list) for record in part]
    after = [at for at, _ in records if at >= stretch.fence_low]
    for at, key in records:
        places = [partition_of_key(stretch.mapping, key, count) for count in (stretch.old_count, stretch.new_count)]
        here = [place == stretch.partition for place in places]
        if key is None or None in places:
            continue
        if here == [True, False]:
            old.setdefault(key, []).append(at)
        elif here == [False, True] and at >= stretch.fence_low:
            new.setdefault(key, []).append(at)
        elif here == [False, False] and at >= stretch.fence_low:
            elsewhere.append(at)
    for kind, plain, end in ((OLD, old, max), (NEW, new, min)):
        rows = {row["key"]: (row["partition"], row["offset"]) for row in found[kind].to_pylist()}
        assert rows == {key: (stretch.partition, end(ats)) for key, ats in plain.items()}
    late = [at for ats in old.values() for at in ats if at >= stretch.fence_low]
    pruned = [at for p in parts if isinstance(p, PrunedOffsets) for at in range(p.first_offset, p.last_offset + 1)]
    high = stretch.fence_high
    assert found[COUNTS].to_pylist() == [
        {
            "partition": stretch.partition,
            "records": len(after),
            "old_records": len(late),
            "late_records": 0 if high is None else sum(at >= high for at in late),
            "elsewhere_records": len(elsewhere),
            "pruned": sum(at >= stretch.fence_low for at in pruned),
            "first_elsewhere": min(elsewhere, default=None),
            "last_old": max(late, default=None),
            "last_below": max((at for at, _ in records if at < stretch.fence_low), default=None),
        }
    ]


def fence(*, is_compacted: bool | None = False, end: int = 30, low: int | None = 10, **changes: Any) -> dict[str, Any]:
    names = ("records", "old_records", "late_records", "elsewhere_records", "pruned")
    counts = {**dict.fromkeys(names, 0), "first_elsewhere": None, "last_old": None, "last_below": None, "partition": 0}
    row = {"partition": 0, "fence_low": low, "fence_high": 30}
    (found,) = fences_by_keys([row], {0: end}, [counts | changes], is_compacted=is_compacted)
    return found


def test_an_exact_fence_and_why_there_is_none() -> None:
    """One past the last record of the old count, or the low fence. Records that the counts do not
    explain leave it unknown, and so do gone, compacted or unread ones."""
    for row, exact, last, reason in [
        (fence(old_records=3, last_old=17, last_below=9), 18, 17, None),
        (fence(last_below=6), 10, 6, None),
        (fence(), 10, None, None),
        (fence(old_records=3, last_old=17, pruned=4), 18, 17, None),
        (fence(low=None), None, None, "low fence"),
        (fence(pruned=4), None, None, "gone"),
        (fence(old_records=3, last_old=17, elsewhere_records=1, first_elsewhere=12), None, 17, "another way"),
        (fence(old_records=3, last_old=17, is_compacted=True), None, 17, "compaction"),
        (fence(old_records=3, last_old=17, is_compacted=None), None, 17, "DESCRIBE_CONFIGS"),
        (fence(old_records=3, last_old=17, end=25), None, 17, "offset 25"),
    ]:
        assert (row["fence_exact"], row["last_record_offset"]) == (exact, last)
        assert (reason or "") in (row["keys_reason"] or "")
        assert (reason is None) == (row["keys_reason"] is None)
        assert row["keys_read_at"] is not None


def keys(*rows: tuple[bytes, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(MOVED_KEYS.names, row, strict=True)) for row in rows], schema=MOVED_KEYS)


def test_a_key_is_at_risk_with_an_open_record_in_the_source_and_one_in_the_destination() -> None:
    """Whichever stretches its records were in; `c` was finished, `b` never went on, `d` went to another partition."""
    old = keys((b"a", 0, 5), (b"a", 0, 9), (b"b", 0, 8), (b"c", 0, 6), (b"d", 0, 9))
    both = keys_of_both(old, keys((b"a", 2, 3), (b"a", 2, 1), (b"c", 2, 2), (b"d", 4, 0), (b"e", 2, 9)))
    verdict = {"partition": 2, "source_partition": 0, "source_offset": 7, "verdict": "broken", "keys_at_risk": None}
    rows = [verdict, verdict | {"source_offset": None}, verdict | {"source_offset": None, "verdict": "safe"}]
    broken, unknown, safe = with_keys_at_risk(rows, both)
    digest = hashlib.sha256(b"a").hexdigest()
    assert broken["keys"] == [{"digest": digest, "last_old_offset": 9, "first_new_offset": 1}]
    assert (broken["keys_at_risk"], unknown["keys_at_risk"], safe["keys_at_risk"]) == (1, None, 0)
