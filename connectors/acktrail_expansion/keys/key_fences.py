"""What keys show of fences and verdicts: columns of ``expansion_fences`` and of ``expansion_verdicts``."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail_expansion.keys.key_stretch import NEW, OLD, one_row_a_key
from acktrail_expansion.words import counted

MOST_NAMED: Final = 1_000
"""Keys of one verdict that are named by their digests."""
_SUMMED: Final = ("late_records", "elsewhere_records", "pruned")
_UNREAD: Final = {"last_record": -1, **dict.fromkeys(_SUMMED, 0)}
_Row = dict[str, Any]


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
