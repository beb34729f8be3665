"""How far the export is: positions of the state partitions, gaps with reasons, sizes of the tables, connectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import (
    DROPPED_BY_RETENTION,
    LOG_REPLACED,
    LOST_FROM_TABLES,
    PRUNED,
    PRUNED_BEFORE_FIRST_EXPORT,
    SKIPPED_BY_REQUEST,
)
from acktrail_dashboard.lists.record_evidence import instant_of

GAPS_SHOWN: Final = 200
QUARANTINED_SHOWN: Final = 100
CONNECTORS_SHOWN: Final = 200

POSITION_COLUMNS: Final = (
    *("state_partition", "last_offset", "records_read", "records_quarantined", "log_start_offset", "log_end_offset"),
    *("gap_first", "gap_last", "gap_reason", "exported_at", "offset_shift", "source_file"),
)
"""Columns of ``export_ranges`` that this module reads."""

_REASONS: Final = {
    PRUNED: ("critical", "Kafka pruned them between two exports"),
    PRUNED_BEFORE_FIRST_EXPORT: ("info", "Kafka pruned them before the first export"),
    LOST_FROM_TABLES: ("critical", "they were exported, the tables lost them, and Kafka has them no more"),
    LOG_REPLACED: ("warning", "the log was replaced here; how many records lie between is not known"),
    DROPPED_BY_RETENTION: ("info", "they were exported and are not kept"),
    SKIPPED_BY_REQUEST: ("warning", "a person moved the position past them"),
}
"""Tone and meaning of the reasons of a gap."""
_FOLDS: Final = [
    *((name, "max") for name in ("last_offset", "gap_last", "exported_at")),
    *((name, "last") for name in ("log_start_offset", "log_end_offset", "offset_shift")),
    *((name, "sum") for name in ("records_read", "records_quarantined")),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPosition:
    """How far one state partition was read. `next_offset`: where reading continues, in offsets of the tables.
    `behind`: records of the log that were there at the last look and are not in the tables; None: not known."""

    state_partition: int
    next_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    behind: int | None
    records_read: int
    records_quarantined: int
    exported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGap:
    """Offsets of a state partition that no row has. `records` None: how many they are is not known."""

    state_partition: int
    first_offset: int
    last_offset: int
    records: int | None
    reason: str
    meaning: str
    tone: str
    exported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """One table by its log. `rows` None: of some file the log does not say. `problem`: why the table cannot be read,
    then nothing else is known."""

    name: str
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    version: int | None = None
    committed_at: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorPosition:
    """The position that a connector wrote last of one source partition."""

    connector: str
    source_partition: str
    position: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    """A state record that could not be decoded, by its address."""

    state_partition: int
    offset: int
    appended_at: datetime | None
    decode_status: str
    decode_error: str | None


def partition_positions(ranges: pa.Table) -> tuple[PartitionPosition, ...]:
    """One row a state partition, from ``POSITION_COLUMNS`` of ``export_ranges``."""
    in_order = ranges.sort_by([("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(_FOLDS)
    rows = folded.sort_by("state_partition").to_pylist() if folded.num_rows else []
    return tuple(_position(row) for row in rows if row["state_partition"] is not None)


def export_gaps(ranges: pa.Table) -> tuple[RecordedGap, ...]:
    """Every gap: those that lost something first, then by state partition and offset."""
    gaps = ranges.filter(pc.and_(pc.is_valid(ranges["gap_first"]), pc.is_valid(ranges["gap_last"])))
    urgent = ("critical", "warning", "unknown", "info")
    return tuple(
        sorted(
            map(_gap, gaps.to_pylist()),
            key=lambda gap: (urgent.index(gap.tone), gap.state_partition, gap.first_offset),
        )
    )


def quarantined_page(records: pa.Table) -> tuple[QuarantinedRecord, ...]:
    """The newest of the records that could not be decoded."""
    newest = (
        records.sort_by([("timestamp_ms", "descending"), ("offset", "descending")]) if records.num_rows else records
    )
    return tuple(
        QuarantinedRecord(appended_at=instant_of(row.pop("timestamp_ms")), **row)
        for row in newest.slice(0, QUARANTINED_SHOWN).to_pylist()
    )


def connector_lines(positions: pa.Table) -> tuple[ConnectorPosition, ...]:
    """The newest row of each source partition, from ``connector_positions``."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in positions.sort_by("number").to_pylist() if positions.num_rows else []:
        newest[row["connector"], row["source_partition"]] = row
    return tuple(
        ConnectorPosition(
            connector=row["connector"],
            source_partition=row["source_partition"],
            position=_text(row["position"]),
            at=row["at"],
        )
        for _, row in sorted(newest.items())
    )


def newest_of(instants: Iterable[datetime | None]) -> datetime | None:
    """The newest of those that are known."""
    return max((at for at in instants if at is not None), default=None)


def _position(row: Mapping[str, Any]) -> PartitionPosition:
    ends = [row[name] for name in ("last_offset_max", "gap_last_max") if row[name] is not None]
    following = max(ends) + 1 if ends else None
    log_end = row["log_end_offset_last"]
    known = following is not None and log_end is not None
    return PartitionPosition(
        state_partition=row["state_partition"],
        next_offset=following,
        log_start_offset=row["log_start_offset_last"],
        log_end_offset=log_end,
        # Kafka's own offsets lie below those of the tables once a log was replaced.
        behind=max(0, log_end + (row["offset_shift_last"] or 0) - following) if known else None,
        records_read=row["records_read_sum"] or 0,
        records_quarantined=row["records_quarantined_sum"] or 0,
        exported_at=row["exported_at_max"],
    )


def _gap(row: Mapping[str, Any]) -> RecordedGap:
    reason = row["gap_reason"]
    tone, meaning = _REASONS.get(reason, ("unknown", "no imported file has them"))
    if reason not in {None, *_REASONS}:
        meaning = "a reason that this release does not know"
    first, last = row["gap_first"], row["gap_last"]
    return RecordedGap(
        state_partition=row["state_partition"],
        first_offset=first,
        last_offset=last,
        records=None if reason == LOG_REPLACED else last - first + 1,
        reason=(reason or "in no file").replace("_", " "),
        meaning=meaning,
        tone=tone,
        exported_at=row["exported_at"],
    )


def _text(position: object) -> str | None:
    return position if position is None or isinstance(position, str) else json.dumps(position)
