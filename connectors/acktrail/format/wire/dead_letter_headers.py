"""Headers of a record in a dead-letter topic of share groups, as a broker of Kafka 4.4 writes them (KIP-1191).

All values are UTF-8 text, numbers in decimal. Topic, partition, offset and group are always there; delivery count and
message only where the broker knows them. A copied record has no headers of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.record_batch import record_headers
from acktrail.model.share_dead_letters import ShareDeadLetter

PREFIX: Final = b"__dlq.errors."
_TOPIC, _PARTITION, _OFFSET, _GROUP = "topic", "partition", "offset", "group"
_COUNT, _MESSAGE = "delivery.count", "message"
_KNOWN: Final = frozenset({_TOPIC, _PARTITION, _OFFSET, _GROUP, _COUNT, _MESSAGE})
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_PART: Final = "headers"


class DeadLetterStatus(StrEnum):
    """Whether the headers could be read: ``not_a_dead_letter`` has none of them."""

    DECODED = "decoded"
    NOT_A_DEAD_LETTER = "not_a_dead_letter"
    MALFORMED_HEADERS = "malformed_headers"


def read_dead_letter(headers: bytes) -> ShareDeadLetter:
    """The dead letter in the bytes of a record's headers. Raises UnsupportedRecord when no header is a broker's,
    MalformedRecord when one is missing, there twice, or no number that it can be."""
    texts = _texts(record_headers(headers))
    if not texts:
        raise UnsupportedRecord("no header of a dead letter among", part=_PART, number=len(record_headers(headers)))
    return ShareDeadLetter(
        group_id=_text(texts, _GROUP),
        topic=_text(texts, _TOPIC),
        partition=_number(texts, _PARTITION, 31),
        offset=_number(texts, _OFFSET, 63),
        delivery_count=_number(texts, _COUNT, 15) if _COUNT in texts else None,
        message=texts.get(_MESSAGE),
    )


def _texts(headers: Iterable[tuple[bytes, bytes | None]]) -> dict[str, str]:
    """The broker's headers by what follows the prefix; others are left out."""
    found: dict[str, str] = {}
    for name, value in headers:
        own = name.removeprefix(PREFIX).decode("utf-8", errors="replace")
        if not name.startswith(PREFIX) or own not in _KNOWN:
            continue
        if own in found:
            raise _malformed(f"header {own} is there twice")
        try:
            found[own] = (value or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(f"header {own} is not UTF-8") from error
        if value is None:
            raise _malformed(f"header {own} is null")
    return found


def _text(texts: Mapping[str, str], name: str) -> str:
    if name not in texts:
        raise _malformed(f"header {name} is missing")
    return texts[name]


def _number(texts: Mapping[str, str], name: str, bits: int) -> int:
    text = _text(texts, name)
    if not _NUMBER.fullmatch(text) or int(text) >> bits:
        raise _malformed(f"header {name} is no number of {bits} bits")
    return int(text)


def _malformed(fault: str) -> MalformedRecord:
    return MalformedRecord(fault, part=_PART, position=0)
