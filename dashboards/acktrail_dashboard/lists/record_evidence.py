"""A stored state record as evidence: what it says, its bytes in hex, and why it is in quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from acktrail.model.batches import DeliveryState

BYTES_SHOWN: Final = 1_024
BATCHES_SHOWN: Final = 100
_WIDTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HexLine:
    """Sixteen bytes: the number of the first one, two digits each, and the characters that are printable ASCII."""

    at: str
    digits: str
    characters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HexDump:
    """The first bytes of `size`; None `size`: there are none, the record is a tombstone or has no key."""

    size: int | None
    lines: tuple[HexLine, ...]

    @property
    def left_off(self) -> int:
        """Bytes that are not shown."""
        return max(0, (self.size or 0) - BYTES_SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBatch:
    """A state batch, its delivery state in words."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvidence:
    """One row of ``state_records``. `record_type` None: it could not be read; `quarantined_because` then says why."""

    state_partition: int
    offset: int
    appended_at: datetime | None
    run_id: str | None
    record_type: str | None
    group_id: str | None
    topic_id: str | None
    topic: str | None
    partition: int | None
    facts: tuple[tuple[str, int | datetime | None], ...]
    batches: tuple[EvidenceBatch, ...]
    batches_left_off: int
    quarantined_because: str | None
    key: HexDump
    value: HexDump


def record_evidence(row: Mapping[str, Any], topics: Mapping[str, str]) -> RecordEvidence:
    """A row of ``state_records`` with names of topics by their ids."""
    batches = row["batches"] or ()
    return RecordEvidence(
        **{
            name: row[name]
            for name in ("state_partition", "offset", "run_id", "record_type", "group_id", "topic_id", "partition")
        },
        appended_at=instant_of(row["timestamp_ms"]),
        topic=topics.get(row["topic_id"] or ""),
        facts=_facts(row),
        batches=tuple(map(_batch, batches[:BATCHES_SHOWN])),
        batches_left_off=max(0, len(batches) - BATCHES_SHOWN),
        quarantined_because=_quarantine(row),
        key=hex_dump(row["key"]),
        value=hex_dump(row["value"]),
    )


def hex_dump(data: bytes | None) -> HexDump:
    """The first bytes of `data`, sixteen a line."""
    if data is None:
        return HexDump(size=None, lines=())
    shown = data[:BYTES_SHOWN]
    lines = (shown[at : at + _WIDTH] for at in range(0, len(shown), _WIDTH))
    return HexDump(
        size=len(data),
        lines=tuple(
            HexLine(at=f"{number * _WIDTH:04x}", digits=line.hex(" "), characters="".join(map(_character, line)))
            for number, line in enumerate(lines)
        ),
    )


def _character(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else "."


def _facts(row: Mapping[str, Any]) -> tuple[tuple[str, int | datetime | None], ...]:
    """What the record says beside its batches, by the names of the columns in words."""
    numbers = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    times = (("created", "create_timestamp_ms"), ("written", "write_timestamp_ms"))
    return (
        *((name.replace("_", " "), row[name]) for name in numbers),
        *((name, instant_of(row[column])) for name, column in times),
    )


def _batch(batch: Mapping[str, Any]) -> EvidenceBatch:
    state = batch["delivery_state"]
    known = {each.value: each.name.lower() for each in DeliveryState}
    return EvidenceBatch(
        first_offset=batch["first_offset"],
        last_offset=batch["last_offset"],
        state=known.get(state, f"state {state}"),
        delivery_count=batch["delivery_count"],
    )


def _quarantine(row: Mapping[str, Any]) -> str | None:
    status = row["decode_status"]
    if status in (None, "decoded"):
        return None
    words = str(status).replace("_", " ")
    return f"{words}: {row['decode_error']}" if row["decode_error"] else words


def instant_of(timestamp_ms: int | None) -> datetime | None:
    """ms since the epoch as an instant; None also beyond the calendar."""
    if timestamp_ms is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
