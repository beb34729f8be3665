"""One state record as evidence: what it says, its bytes in hex, and why it is in quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from acktrail.model.batches import DeliveryState

BYTES_SHOWN: Final = 1_024
BATCHES_SHOWN: Final = 100
_WIDTH: Final = 16
_NUMBERS: Final = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
_TIMES: Final = (("created", "create_timestamp_ms"), ("written", "write_timestamp_ms"))
_STATES: Final = {each.value: each.name.lower() for each in DeliveryState}


def record_evidence(row: Mapping[str, Any], topics: Mapping[str, str]) -> dict[str, Any]:
    """A row of ``state_records`` with the name of its topic by its id, and: `appended_at`; `facts`, what it says beside
    its batches, by the names of the columns in words; `batches`, the first of them with `state` in words, and how many
    are left off; `quarantined_because`, None where it was decoded."""
    batches = row["batches"] or ()
    return {
        **row,
        "appended_at": instant_of(row["timestamp_ms"]),
        "topic": topics.get(row["topic_id"] or ""),
        "facts": [
            *((name.replace("_", " "), row[name]) for name in _NUMBERS),
            *((name, instant_of(row[column])) for name, column in _TIMES),
        ],
        "batches": [{**each, "state": _state(each["delivery_state"])} for each in batches[:BATCHES_SHOWN]],
        "batches_left_off": max(0, len(batches) - BATCHES_SHOWN),
        "quarantined_because": _quarantine(row),
    }


def hex_lines(data: bytes, most: int = BYTES_SHOWN) -> Iterator[str]:
    """The first bytes of `data`, sixteen a line: where they are, two digits each, and their printable ASCII."""
    shown = data[:most]
    for at in range(0, len(shown), _WIDTH):
        line = shown[at : at + _WIDTH]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"{at:04x}  {line.hex(' '):<47}  {characters}"


def _state(state: int) -> str:
    return _STATES.get(state, f"state {state}")


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
