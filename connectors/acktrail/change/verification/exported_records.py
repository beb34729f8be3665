"""Records of the state topic that it has pruned and that the tables have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from acktrail.change.collection.facts import ClusterFacts
from acktrail.change.verification.partition_outcome import Seen
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.format.wire.raw_record import RawRecord, decode_raw
from acktrail.model.share_partition import SharePartition

_COLUMNS: Final = ["state_partition", "offset", "timestamp_ms", "key", "value"]


def exported_between(
    tables: TablesConfig, cluster: ClusterFacts, keys: Collection[SharePartition], spans: Mapping[int, tuple[int, int]]
) -> list[tuple[SharePartition, Seen]] | None:
    """The records of `keys` in `spans` (state partition: first offset, offset after the last), in order. None: some of
    them were not exported, cannot be decoded, or the tables cannot be read."""
    from acktrail.tables.delta.store import Tables

    store, mine = Tables(tables), {"cluster_id": cluster.cluster_id, "state_partition": list(spans)}
    try:
        ranges = store.rows("export_ranges", {**mine, "state_topic_id": cluster.state_topic_id})
        if cluster.state_topic_id is None or not _are_exported(spans, ranges):
            return None
        groups = sorted({key.group_id for key in keys})
        rows = store.rows("state_records", {**mine, "group_id": groups}, columns=_COLUMNS)
    except AcktrailError:
        return None
    found: list[tuple[SharePartition, Seen]] = []
    inside = (RawRecord(**row) for row in rows if row["offset"] in range(*spans[row["state_partition"]]))
    for raw in sorted(inside, key=lambda raw: (raw.state_partition, raw.offset)):
        record = decode_raw(raw).record
        if record is None:
            return None
        if record.key in keys:
            found.append((record.key, ((raw.state_partition, raw.offset), record)))
    return found


def _are_exported(spans: Mapping[int, tuple[int, int]], ranges: Iterable[Mapping[str, Any]]) -> bool:
    known: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in ranges:
        if row["offset_shift"]:
            return False  # behind a break of the log the tables have offsets of their own
        if row["first_offset"] is not None and row["last_offset"] is not None:
            known[row["state_partition"]].append((row["first_offset"], row["last_offset"]))
    return all(is_covered(span, known[partition]) for partition, span in spans.items())


def is_covered(span: tuple[int, int], ranges: Collection[tuple[int, int]]) -> bool:
    """Whether `ranges` (first and last offset, both included) hold every offset of `span` (the end excluded)."""
    at, end = span
    for first, last in sorted(ranges):
        if first > at:
            break
        at = max(at, last + 1)
    return at >= end
