"""State records that Kafka has pruned, as the tables have kept them: what a request did can be found out later, too.

They count only where every one is there. Example: offsets 6 to 8 are wanted. The ranges 5 to 6 and 7 to 9 of exports
have them all; the ranges 5 to 6 and 8 to 9 do not, so nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.records import StateRecord
from acktrail.model.share_partition import SharePartition
from acktrail.tables.delta.store import Tables

_COLUMNS: Final = ["state_partition", "offset", "timestamp_ms", "key", "value"]


def pruned_between(
    tables: TablesConfig,
    cluster_id: str,
    state_topic_id: str | None,
    keys: Collection[SharePartition],
    spans: Mapping[int, tuple[int, int]],
) -> list[tuple[SharePartition, tuple[tuple[int, int], StateRecord]]] | None:
    """The records of `keys` in `spans` (state partition: first offset, offset after the last), in order, each with its
    state partition and offset. None: some of them were not exported, cannot be decoded, or the tables cannot be
    read."""
    store, mine = Tables(tables), {"cluster_id": cluster_id, "state_partition": list(spans)}
    try:
        ranges = store.rows("export_ranges", {**mine, "state_topic_id": state_topic_id})
        if state_topic_id is None or not _are_exported(spans, ranges):
            return None
        groups = sorted({key.group_id for key in keys})
        rows = store.rows("state_records", {**mine, "group_id": groups}, columns=_COLUMNS)
    except AcktrailError:
        return None
    inside = (RawRecord(**row) for row in rows if row["offset"] in range(*spans[row["state_partition"]]))
    raws = sorted(inside, key=lambda raw: (raw.state_partition, raw.offset))
    found = [((raw.state_partition, raw.offset), decode_raw(raw).record) for raw in raws]
    if any(record is None for _, record in found):
        return None
    return [(record.key, (place, record)) for place, record in found if record is not None and record.key in keys]


def _are_exported(spans: Mapping[int, tuple[int, int]], ranges: Iterable[Mapping[str, Any]]) -> bool:
    known: defaultdict[int, OffsetRanges] = defaultdict(OffsetRanges)
    for row in ranges:
        if row["offset_shift"]:
            return False  # behind a break of the log the tables have offsets of their own
        if row["first_offset"] is not None and row["last_offset"] is not None:
            known[row["state_partition"]].add(row["first_offset"], row["last_offset"])
    return not any(list(known[number].outside(first, end - 1)) for number, (first, end) in spans.items())
