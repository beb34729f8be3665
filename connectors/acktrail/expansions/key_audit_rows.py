"""What a key audit writes: a judgement of each source, and the keys at risk, whose keys are stored as digests only."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import KEY_AUDITS, KEYS_AT_RISK
from acktrail.expansions.exact_fences import EXACT, with_exact_fences
from acktrail.model.expansion.expansion_texts import counted
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

_BRACKETED: Final = "bracketed"
_UNKNOWN: Final = "unknown"
_SUMMED: Final = ("records", "without_key", "elsewhere", "old_records", "pruned")

_Row = dict[str, Any]


def judged_rows(
    event: Mapping[str, Any],
    fences: Mapping[int, Mapping[str, Any]],
    ends: Mapping[int, int],
    counts: pa.Table,
    *,
    run_id: str,
    is_compacted: bool | None,
) -> list[_Row]:
    """A row of ``KEY_AUDITS`` for each source, from the counts of its stretches. The exact fence is one past the last
    record of the old count, or the low fence where there is none; `confidence` is exact where all records of the
    interval were there, and explained by one of the counts."""
    found: dict[int, list[_Row]] = defaultdict(list)
    for row in counts.to_pylist():
        found[row["partition"]].append(row)
    rows = []
    for partition in range(event["old_count"]):
        fence = fences.get(partition, {})
        own = found[partition]
        sums = {name: sum(each[name] for each in own) for name in _SUMMED}
        low = fence.get("fence_low")
        last = max((each["last_old"] for each in own if each["last_old"] is not None), default=None)
        reason = _why_not_known(low, own, sums)
        exact = None if reason else low if last is None else last + 1
        doubt = reason or _doubt(fence, ends.get(partition, 0), is_compacted=is_compacted)
        rows.append(
            {
                **{name: event[name] for name in ("cluster_id", "event_id", "topic_id", "topic")},
                "run_id": run_id,
                "audited_at": dt.datetime.now(dt.UTC),
                "partition": partition,
                "end_offset": None if low is None else max(low, ends.get(partition, low)),
                **sums,
                "fence_low": low,
                "fence_high": fence.get("fence_high"),
                "fence_exact": exact,
                "confidence": _UNKNOWN if exact is None else _BRACKETED if doubt else EXACT,
                "reason": doubt,
                "last_record_offset": _last_record(own) if is_compacted is False else None,
            }
        )
    return rows


def _last_record(own: Sequence[_Row]) -> int | None:
    """The newest record before the low fence."""
    return max((each["last_before"] for each in own if each["last_before"] is not None), default=None)


def _why_not_known(low: int | None, own: Sequence[_Row], sums: Mapping[str, int]) -> str | None:
    if low is None:
        return "the low fence is not known"
    if sums["elsewhere"]:
        first = min(each["first_elsewhere"] for each in own if each["first_elsewhere"] is not None)
        return (
            f"{counted(sums['elsewhere'], 'record')} where neither count puts the key, the first at offset {first}: "
            "some producers choose partitions in another way"
        )
    if sums["pruned"] and not sums["old_records"]:
        return f"gone from the start of the log: {counted(sums['pruned'], 'offset')}"
    return None


def _doubt(fence: Mapping[str, Any], end: int, *, is_compacted: bool | None) -> str | None:
    if end < (fence.get("fence_high") or 0):
        return f"read up to offset {end} only: an open transaction, or the next expansion"
    if is_compacted:
        return "compaction removes records: later ones of the old count may be gone"
    if is_compacted is None:
        return "whether compaction removes records is not known (DESCRIBE_CONFIGS on the topic)"
    return None


def write_audit(
    stored: Tables, event: Mapping[str, Any], sources: Sequence[_Row], both: pa.Table, *, run_id: str
) -> None:
    """Put the audit of an expansion in place of an earlier one, and its exact fences into ``expansion_fences``."""
    about = {name: event[name] for name in ("cluster_id", "event_id", "topic_id", "topic")}
    risks = [
        {
            **about,
            "run_id": run_id,
            "key_digest": hashlib.sha256(row["key"]).hexdigest(),
            "source_partition": row["partition"],
            "last_old_offset": row["offset"],
            "last_old_ms": row["timestamp"],
            "old_records": row["records"],
            "partition": row["partition_new"],
            "first_new_offset": row["offset_new"],
            "first_new_ms": row["timestamp_new"],
        }
        for row in both.to_pylist()
    ]
    audits = pa.Table.from_pylist([dict(row) for row in sources], schema=KEY_AUDITS)
    for name, rows in (("key_audits", audits), ("keys_at_risk", pa.Table.from_pylist(risks, schema=KEYS_AT_RISK))):
        create_for(stored, name, event["cluster_id"])
        others = stored.read(name, where=pc.field("event_id") != event["event_id"])
        stored.replace(name, pa.concat_tables([others, rows]))
    fences = stored.read("expansion_fences")
    stored.replace("expansion_fences", with_exact_fences(fences, stored.read("key_audits")))
