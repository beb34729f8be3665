"""Which records were written with the old count, and what that says of fences and keys: all at once as one by one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.descriptions import LogStretch
from acktrail.kafka.log_reader import PrunedOffsets
from acktrail.tables.delta.store import Tables
from acktrail_expansion import STEP
from acktrail_expansion.keys import key_reading
from acktrail_expansion.keys.key_reading import (
    MOVED_KEYS,
    STRETCH_COUNTS,
    KeyStretch,
    fences_by_keys,
    keys_of_both,
    moves_in,
    with_keys_at_risk,
)
from acktrail_expansion.ordering.order import KeyMapping
from acktrail_jobs.frames import rows_in
from acktrail_simulation.expansion.key_partitions import partition_of_key

WORDS = [*(b"the key of a customer in Rome"[:size] for size in range(28)), b"long" * 130, b"long" * 130 + b"er"]
KEYS = st.sampled_from([None, b"", b"a"]) | st.sampled_from(WORDS)
FENCES = key_reading.FENCES


@st.composite
def stretches(draw: st.DrawFn) -> KeyStretch:
    """One of any partition before or after."""
    old_count, more, low = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(0, 30))
    mapping = draw(st.sampled_from([KeyMapping.MURMUR2, KeyMapping.CRC32]))
    event = {"old_count": old_count, "new_count": old_count + more, "key_mapping": mapping}
    partition, high = draw(st.integers(0, old_count + more - 1)), draw(st.none() | st.integers(low, low + 20))
    wanted = LogStretch(topic="t", partition=partition, first_offset=0, end_offset=100)
    kafka = KafkaConfig(bootstrap_servers="nowhere:1")
    return KeyStretch(kafka=kafka, event=event, wanted=wanted, fence_low=low, fence_high=high)


@given(stretches(), st.integers(0, 40), st.lists(KEYS, min_size=20, max_size=60), st.integers(0, 20))
def test_moved_keys_and_counts_are_those_of_the_plain_law(
    stretch: KeyStretch, pruned: int, keys: list[bytes | None], cut: int
) -> None:
    """Each record alone, by ``partition_of_key`` with both counts. Keys have any length; none and empty ones, too."""
    partition, low, high = stretch.wanted.partition, stretch.fence_low, stretch.fence_high
    records = [(pruned + 2 * number, key) for number, key in enumerate(keys)]
    names = pa.schema({"offset": pa.int64(), "key": pa.binary()})
    table = pa.Table.from_pylist([{"offset": at, "key": key} for at, key in records], schema=names)
    parts = [PrunedOffsets(0, pruned - 1, partition), table.slice(0, cut), table.slice(cut)]

    (found,) = moves_in(stretch, parts)

    moved: dict[str, dict[bytes, int]] = {"old": {}, "new": {}}
    by_old, elsewhere, mapping = [], 0, stretch.event["key_mapping"]
    for at, key in records:
        here = [partition_of_key(mapping, key, stretch.event[name]) for name in ("old_count", "new_count")]
        is_by = [place == partition for place in here]
        if key is None or None in here or is_by == [True, True]:
            continue
        if is_by[0]:
            moved["old"][key] = at
            by_old.append(at)
        elif is_by[1] and at >= low:
            moved["new"].setdefault(key, at)
        elif not is_by[1]:
            elsewhere += at >= low
    for kind, plain in moved.items():
        rows = {row["key"]: (row["partition"], row["offset"]) for row in rows_in(found, kind).to_pylist()}
        assert rows == {key: (partition, at) for key, at in plain.items()}
    last = max([*by_old, *(at for at, _ in records if at < low)], default=-1)
    late = 0 if high is None else sum(at >= high for at in by_old)
    expected = dict(zip(STRETCH_COUNTS.names, (partition, last, late, elsewhere, max(0, pruned - low)), strict=True))
    assert rows_in(found, "counts").to_pylist() == [expected]


LATE = {"last_record": 17}
REASONS: list[tuple[dict[str, Any], int | None, int | None, str]] = [
    ({}, 10, None, ""),
    (LATE | {"pruned": 4}, 18, 17, ""),
    ({"fence_low": None}, None, None, "low fence"),
    ({"pruned": 4}, None, None, "gone"),
    (LATE | {"elsewhere_records": 1}, None, 17, "another way"),
    (LATE | {"is_compacted": True}, None, 17, "compaction"),
    (LATE | {"is_compacted": None}, None, 17, "DESCRIBE_CONFIGS"),
    (LATE | {"end": 25}, None, 17, "offset 25"),
]


@pytest.mark.parametrize(("case", "exact", "last", "reason"), REASONS)
def test_an_exact_fence_and_why_there_is_none(
    case: dict[str, Any], exact: int | None, last: int | None, reason: str
) -> None:
    """One past the last record of the old count, or the low fence. Records that the counts do not explain leave it
    unknown, and so do gone, compacted or unread ones."""
    given = {**dict.fromkeys(STRETCH_COUNTS.names, 0), "last_record": -1, "fence_low": 10, "is_compacted": False} | case
    counts = pa.Table.from_pylist([given], schema=STRETCH_COUNTS)
    fence = {"partition": 0, "fence_low": given["fence_low"], "fence_high": 30}
    (row,) = fences_by_keys([fence], {0: given.get("end", 30)}, counts, is_compacted=given["is_compacted"])
    assert (row["fence_exact"], row["last_record_offset"], bool(row["keys_reason"])) == (exact, last, bool(reason))
    assert reason in (row["keys_reason"] or "")


def keys(*rows: tuple[bytes, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(MOVED_KEYS.names, row, strict=True)) for row in rows], schema=MOVED_KEYS)


def test_a_key_is_at_risk_with_an_open_record_in_the_source_and_one_in_the_destination() -> None:
    """Whichever stretches its records were in; `c` was finished, `b` never went on, `d` went to another partition."""
    old = keys((b"a", 0, 5), (b"a", 0, 9), (b"b", 0, 8), (b"c", 0, 6), (b"d", 0, 9))
    both = keys_of_both(old, keys((b"a", 2, 3), (b"a", 2, 1), (b"c", 2, 2), (b"d", 4, 0), (b"e", 2, 9)))
    verdict = {"partition": 2, "source_partition": 0, "source_offset": 7, "keys_at_risk": None}
    digest = hashlib.sha256(b"a").hexdigest()
    named = {"keys_at_risk": 1, "keys": [{"digest": digest, "last_old_offset": 9, "first_new_offset": 1}]}
    assert with_keys_at_risk(verdict, both) == verdict | named
    assert with_keys_at_risk(verdict | {"source_offset": None}, both)["keys_at_risk"] is None


def test_what_keys_show_never_replaces_the_rows_of_a_later_audit(tmp_path: Path) -> None:
    """Nothing is written, and that is said."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "t")))
    tables.replace(FENCES, pa.Table.from_pylist([{"event_id": "e"}], schema=TABLES[FENCES]), transactions={STEP: 2})
    with pytest.raises(ConcurrentCommit):
        key_reading._put(tables, FENCES, "e", [{"event_id": "e", "fence_exact": 1}], 1)
    assert [row["fence_exact"] for row in tables.rows(FENCES)] == [None]
