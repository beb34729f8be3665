"""What keys show of fences and verdicts: columns of ``expansion_fences`` and of ``expansion_verdicts``."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail_expansion.keys.key_stretch import NEW, OLD, one_row_a_key
from acktrail_expansion.law.verdict import OrderVerdict
from acktrail_expansion.words import counted

MOST_NAMED: Final = 1_000
"""Keys of one verdict that are named by their digests."""
_SUMMED: Final = ("old_records", "late_records", "elsewhere_records", "pruned")
_Row = dict[str, Any]


def fences_by_keys(
    fences: Iterable[_Row], ends: Mapping[int, int], counts: Iterable[_Row], *, is_compacted: bool | None
) -> list[_Row]:
    """The rows of ``expansion_fences`` of one expansion, with what its keys show. `ends`: up to where each partition
    was read; `counts`: rows of ``STRETCH_COUNTS``.

    The exact fence is one past the last record by the old count, or the low fence where none is behind it. The last
    record below it may lie lower: what follows is of transaction markers, aborted or compacted records.
    Example: low 10, high 14, records at 0 to 6 and, by the old count, at 10 and 11: exact is 12, the last record 11;
    without these two exact is 10, the last record 6.
    """
    found: dict[int, list[_Row]] = defaultdict(list)
    for row in counts:
        found[row["partition"]].append(row)
    now = dt.datetime.now(dt.UTC)
    return [_of_keys(fence, found[fence["partition"]], ends, now, is_compacted=is_compacted) for fence in fences]


def _of_keys(
    fence: _Row, own: list[_Row], ends: Mapping[int, int], now: dt.datetime, *, is_compacted: bool | None
) -> _Row:
    sums = {name: sum(each[name] for each in own) for name in _SUMMED}
    last = _newest(own, "last_old")
    last = _newest(own, "last_below") if last is None else last
    reason = _why_not_exact(fence, own, sums, ends[fence["partition"]], is_compacted=is_compacted)
    return fence | {
        "fence_exact": None if reason else max(fence["fence_low"], -1 if last is None else last + 1),
        "keys_read_at": now,
        "keys_reason": reason,
        "last_record_offset": last,
        **{name: sums[name] for name in _SUMMED if name != "pruned"},
    }


def _newest(own: list[_Row], name: str) -> int | None:
    return max((each[name] for each in own if each[name] is not None), default=None)


def _why_not_exact(
    fence: _Row, own: list[_Row], sums: Mapping[str, int], end: int, *, is_compacted: bool | None
) -> str | None:
    first = min((each["first_elsewhere"] for each in own if each["first_elsewhere"] is not None), default=None)
    wrong = f"{counted(sums['elsewhere_records'], 'record')} where neither count puts the key, the first at offset"
    reasons = (
        (fence["fence_low"] is None, "the low fence is not known"),
        (first is not None, f"{wrong} {first}: some producers knew another count, or choose partitions in another way"),
        (
            sums["pruned"] and not sums["old_records"],
            f"gone from the start of the log: {counted(sums['pruned'], 'offset')}",
        ),
        (
            end < (fence["fence_high"] or 0),
            f"read up to offset {end} only: an open transaction, or the next expansion",
        ),
        (is_compacted, "compaction removes records: later ones of the old count may be gone"),
        (is_compacted is None, "whether compaction removes records is not known (DESCRIBE_CONFIGS on the topic)"),
    )
    return next((text for applies, text in reasons if applies), None)


def keys_of_both(old: pa.Table, new: pa.Table) -> pa.Table:
    """The keys with a record by the old count and one by the new count: `key`, the last one's `partition` and `offset`,
    and the first one's `partition_new` and `offset_new`. Of `old`, `new`: ``MOVED_KEYS``."""
    return one_row_a_key(old, OLD).join(one_row_a_key(new, NEW), keys="key", join_type="inner", right_suffix="_new")


def with_keys_at_risk(verdicts: Iterable[_Row], both: pa.Table) -> Iterator[_Row]:
    """Rows of ``expansion_verdicts`` of one expansion with the keys at risk of each: those with a record in its source
    that was open (at or above `source_offset`), and one in the destination. Null where no open record is known."""
    for row in verdicts:
        if row["verdict"] == OrderVerdict.SAFE:
            yield row | {"keys_at_risk": 0, "keys": []}
        elif row["source_offset"] is None:
            yield row
        else:
            found = keys_at_risk(row, both)
            yield row | {"keys_at_risk": found.num_rows, "keys": _digests(found)}


def keys_at_risk(row: Mapping[str, Any], both: pa.Table) -> pa.Table:
    """Rows of `both` (``keys_of_both``) about one verdict that names an open record."""
    is_own = pc.and_(
        pc.equal(both["partition"], row["source_partition"]), pc.equal(both["partition_new"], row["partition"])
    )
    return both.filter(pc.and_(is_own, pc.greater_equal(both["offset"], row["source_offset"])))


def _digests(found: pa.Table) -> list[dict[str, Any]]:
    named = (
        {
            "digest": hashlib.sha256(each["key"]).hexdigest(),
            "last_old_offset": each["offset"],
            "first_new_offset": each["offset_new"],
        }
        for each in found.to_pylist()
    )
    return sorted(named, key=lambda each: str(each["digest"]))[:MOST_NAMED]
