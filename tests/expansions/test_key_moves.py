"""Which records were written with the old count, and which with the new one: all at once as one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acktrail.broker.state.state_range import PrunedOffsets
from acktrail.columnar.schemas.table_schemas import EXPANSION_FENCES, KEY_AUDITS, RAW_RECORDS
from acktrail.config import KafkaConfig
from acktrail.expansions.exact_fences import with_exact_fences
from acktrail.expansions.key_audit_rows import judged_rows
from acktrail.expansions.key_moves import (
    COUNTS,
    FIND_KEYS,
    NEW,
    OLD,
    STRETCH_COUNTS,
    KeyStretch,
    keys_of_both,
    moves_in,
)
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail_simulation.expansion.key_partitions import partition_of_key

Record = tuple[int, bytes | None]
"""Offset and key."""
KEYS = [None, b"", *(f"key-{number}".encode() for number in range(12))]
EVENT = {"cluster_id": "c1", "event_id": "e1", "topic_id": "t1", "topic": "orders", "old_count": 2, "new_count": 4}


@st.composite
def logs(draw: st.DrawFn) -> tuple[KeyStretch, list[list[Record] | PrunedOffsets]]:
    """A stretch, and what reading it gives: runs of records in ascending offsets, and pruned ones, the first of them
    before it."""
    before = draw(st.sampled_from([0, 0, 1, 9]))
    old_count = draw(st.integers(1, 4))
    new_count = old_count + draw(st.integers(1, 5))
    stretch = KeyStretch(
        kafka=KafkaConfig(bootstrap_servers="nowhere:1"),
        cluster_id="c1",
        topic="orders",
        topic_id="t1",
        partition=draw(st.integers(0, new_count - 1)),
        first_offset=before,
        before=before,
        end_offset=1_000,
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
        run = []
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=12)):
            at += draw(st.integers(1, 3))
            run.append((at, key))
        parts.append(run)
    return stretch, parts


def as_read(parts: Sequence[list[Record] | PrunedOffsets], partition: int) -> list[pa.Table | PrunedOffsets]:
    def table(run: Sequence[Record]) -> pa.Table:
        rows = [
            {"partition": partition, "offset": at, "timestamp": 10 * at, "key": key, "value": b""} for at, key in run
        ]
        return pa.Table.from_pylist(rows, schema=RAW_RECORDS)

    return [part if isinstance(part, PrunedOffsets) else table(part) for part in parts]


@given(logs())
def test_moved_keys_and_counts_are_those_of_the_plain_law(
    log: tuple[KeyStretch, list[list[Record] | PrunedOffsets]],
) -> None:
    """Each record alone, by ``partition_of_key`` with both counts."""
    stretch, parts = log
    found = FIND_KEYS.gathered(moves_in(stretch, as_read(parts, stretch.partition)))

    old: dict[bytes, list[int]] = {}
    new: dict[bytes, list[int]] = {}
    elsewhere: list[int] = []
    without_key = 0
    records = [record for part in parts if isinstance(part, list) for record in part]
    own = [record for record in records if record[0] >= stretch.first_offset]
    pruned = [at for p in parts if isinstance(p, PrunedOffsets) for at in range(p.first_offset, p.last_offset + 1)]
    for at, key in own:
        places = [partition_of_key(stretch.mapping, key, count) for count in (stretch.old_count, stretch.new_count)]
        here = [place == stretch.partition for place in places]
        if key is None or None in places:
            without_key += 1
        elif here == [True, False]:
            old.setdefault(key, []).append(at)
        elif here == [False, True]:
            new.setdefault(key, []).append(at)
        elif here == [False, False]:
            elsewhere.append(at)
    for kind, plain, end in ((OLD, old, max), (NEW, new, min)):
        rows = {row["key"]: (row["offset"], row["timestamp"], row["records"]) for row in found[kind].to_pylist()}
        assert rows == {key: (end(ats), 10 * end(ats), len(ats)) for key, ats in plain.items()}
    (counts,) = found[COUNTS].to_pylist()
    assert counts == {
        "partition": stretch.partition,
        "records": len(own),
        "without_key": without_key,
        "elsewhere": len(elsewhere),
        "first_elsewhere": min(elsewhere, default=None),
        "old_records": sum(map(len, old.values())),
        "last_old": max((max(ats) for ats in old.values()), default=None),
        "pruned": sum(at >= stretch.first_offset for at in pruned),
        "last_before": max((at for at, _ in records if at < stretch.first_offset), default=None),
    }


def test_a_key_is_at_risk_with_records_of_both_counts() -> None:
    """The last record of the old count and the first of the new one, whichever stretch they were in."""
    old = pa.Table.from_pylist(
        [
            {"key": b"a", "partition": 0, "offset": 5, "timestamp": 50, "records": 2},
            {"key": b"a", "partition": 0, "offset": 9, "timestamp": 90, "records": 1},
            {"key": b"b", "partition": 1, "offset": 3, "timestamp": 30, "records": 1},
        ],
        schema=FIND_KEYS.kinds[OLD],
    )
    new = pa.Table.from_pylist(
        [
            {"key": b"a", "partition": 2, "offset": 0, "timestamp": 70, "records": 4},
            {"key": b"a", "partition": 2, "offset": 8, "timestamp": 80, "records": 1},
            {"key": b"c", "partition": 3, "offset": 0, "timestamp": 10, "records": 1},
        ],
        schema=FIND_KEYS.kinds[NEW],
    )
    (row,) = keys_of_both(old, new).to_pylist()
    assert (row["key"], row["partition"], row["offset"], row["records"]) == (b"a", 0, 9, 3)
    assert (row["partition_new"], row["offset_new"], row["timestamp_new"], row["records_new"]) == (2, 0, 70, 5)


def judged(*, is_compacted: bool | None = False, end: int = 30, **changes: Any) -> dict[str, Any]:
    names = ("records", "without_key", "elsewhere", "old_records", "pruned")
    counts = {"partition": 0, **dict.fromkeys(names, 0), "records": 20, **changes}
    table = pa.Table.from_pylist([counts], schema=STRETCH_COUNTS)
    fences = {0: {"fence_low": 10, "fence_high": 30}}
    rows = judged_rows(EVENT, fences, {0: end, 1: end}, table, run_id="r", is_compacted=is_compacted)
    assert rows[1]["reason"] == "the low fence is not known"
    return rows[0]


def test_an_exact_fence_and_what_makes_it_doubtful() -> None:
    """One past the last record of the old count; the low fence where there is none. Records that the counts do not
    explain leave it unknown; gone, compacted or unread ones leave it bracketed."""
    for row, exact, confidence, reason in [
        (judged(old_records=3, last_old=17), 18, "exact", None),
        (judged(), 10, "exact", None),
        (judged(old_records=3, last_old=17, pruned=4), 18, "exact", None),
        (judged(pruned=4), None, "unknown", "gone"),
        (judged(old_records=3, last_old=17, elsewhere=1, first_elsewhere=12), None, "unknown", "another way"),
        (judged(old_records=3, last_old=17, is_compacted=True), 18, "bracketed", "compaction"),
        (judged(old_records=3, last_old=17, is_compacted=None), 18, "bracketed", "DESCRIBE_CONFIGS"),
        (judged(old_records=3, last_old=17, end=25), 18, "bracketed", "offset 25"),
    ]:
        assert (row["fence_exact"], row["confidence"]) == (exact, confidence)
        assert reason is None if row["reason"] is None else reason is not None and reason in row["reason"]


def test_fences_keep_their_rows_and_become_exact() -> None:
    """Only the audited sources of the audited expansion change; the order of the rows stays."""
    fences = [
        {"cluster_id": "c1", "event_id": event, "partition": partition, "fence_low": 1, "confidence": "bracketed"}
        for event in ("e0", "e1")
        for partition in (1, 0)
    ]
    audits = [
        {"cluster_id": "c1", "event_id": "e1", "partition": 0, "fence_exact": 7, "confidence": "exact"},
        {"cluster_id": "c1", "event_id": "e1", "partition": 1, "fence_exact": 8, "confidence": "bracketed"},
    ]
    before = pa.Table.from_pylist(fences, schema=EXPANSION_FENCES)
    after = with_exact_fences(before, pa.Table.from_pylist(audits, schema=KEY_AUDITS)).to_pylist()
    assert [(row["event_id"], row["partition"], row["fence_exact"], row["confidence"]) for row in after] == [
        ("e0", 1, None, "bracketed"),
        ("e0", 0, None, "bracketed"),
        ("e1", 1, None, "bracketed"),
        ("e1", 0, 7, "exact"),
    ]
    assert with_exact_fences(before, KEY_AUDITS.empty_table()) == before
    again = with_exact_fences(pa.Table.from_pylist(after, schema=EXPANSION_FENCES), KEY_AUDITS.empty_table())
    assert again == before, "what the newest key audit does not find is not exact any more"
