"""Records of the state topic that it has pruned and the tables have kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.group_changes.verification.partition_outcome import Seen
from acktrail.model.share_partition import SharePartition
from acktrail.wire.raw_record import RawRecord, decode_raw


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRecords:
    """Records of `keys` in the tables of a cluster, of the state topic with `state_topic_id`."""

    tables: TablesConfig
    cluster_id: str
    state_topic_id: str | None
    keys: Collection[SharePartition]

    def between(self, spans: Mapping[int, tuple[int, int]]) -> list[tuple[SharePartition, Seen]] | None:
        """The records of `spans` (state partition: first offset, offset after the last), in order.

        None: some of them were not exported, cannot be decoded, or the tables cannot be read.
        """
        from acktrail.tables.delta.store import Tables

        store = Tables(self.tables)
        mine = {"cluster_id": self.cluster_id, "state_partition": list(spans)}
        try:
            ranges = store.rows("export_ranges", {**mine, "state_topic_id": self.state_topic_id})
            if self.state_topic_id is None or any(row["offset_shift"] for row in ranges):
                return None  # behind a break of the log the tables have offsets of their own
            by_partition = {p: [_range(row) for row in ranges if row["state_partition"] == p] for p in spans}
            if not all(is_covered(span, by_partition[partition]) for partition, span in spans.items()):
                return None
            groups = sorted({key.group_id for key in self.keys})
            columns = ["state_partition", "offset", "timestamp_ms", "key", "value"]
            rows = store.rows("state_records", {**mine, "group_id": groups}, columns=columns)
        except AcktrailError:
            return None
        return self._records([row for row in rows if _is_in(spans[row["state_partition"]], row["offset"])])

    def _records(self, rows: list[dict[str, object]]) -> list[tuple[SharePartition, Seen]] | None:
        found: list[tuple[SharePartition, Seen]] = []
        raw = [RawRecord(**row) for row in rows]  # type: ignore[arg-type]  # the columns of a raw record
        for each in sorted(raw, key=lambda each: (each.state_partition, each.offset)):
            record = decode_raw(each).record
            if record is None:
                return None
            if record.key in self.keys:
                found.append((record.key, ((each.state_partition, each.offset), record)))
        return found


def is_covered(span: tuple[int, int], ranges: Collection[tuple[int, int]]) -> bool:
    """Whether `ranges` (first and last offset, both included) hold every offset of `span` (the end excluded)."""
    at, end = span
    for first, last in sorted(ranges):
        if first > at:
            break
        at = max(at, last + 1)
    return at >= end


def _range(row: Mapping[str, int | None]) -> tuple[int, int]:
    first, last = row["first_offset"], row["last_offset"]
    return (0, -1) if first is None or last is None else (first, last)


def _is_in(span: tuple[int, int], offset: object) -> bool:
    return isinstance(offset, int) and span[0] <= offset < span[1]
