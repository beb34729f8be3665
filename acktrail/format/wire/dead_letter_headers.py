"""Dead letters of share groups as a broker of Kafka 4.4 writes them: headers of a record, and its topic (KIP-1191).

All values are UTF-8 text, numbers in decimal. Topic, partition, offset and group are always there; delivery count and
message only where the broker knows them, after the others. The broker copies no headers of the record. Other programs
that copy records along with their headers leave those of earlier deaths before those of the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.record_batch import record_headers

TOPIC_OF_GROUP: Final = "errors.deadletterqueue.topic.name"
"""The configuration of a share group that names its dead-letter topic."""
TOPIC_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
"""The configuration of a broker with which the name of every dead-letter topic has to begin."""
PREFIX: Final = b"__dlq.errors."
_TOPIC, _PARTITION, _OFFSET, _GROUP = "topic", "partition", "offset", "group"
_COUNT, _MESSAGE = "delivery.count", "message"
_KNOWN: Final = frozenset({_TOPIC, _PARTITION, _OFFSET, _GROUP, _COUNT, _MESSAGE})
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_PART: Final = "headers"


def dropped_letters(topic: str | None, prefix: str | None) -> str | None:
    """Why brokers drop the dead letters of a group that names `topic`; None: they do not, or `prefix` is not known.
    They archive the records all the same (Kafka class ``ShareGroupDLQStateManager``)."""
    if not topic or prefix is None or topic.startswith(prefix):
        return None
    return f"dead letters are dropped: the topic {topic!r} does not begin with {prefix!r}, the brokers' {TOPIC_PREFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDeadLetter:
    """What a broker wrote of a record that a share group gave up: the record's address, by the topic's name (its id
    where the broker did not know a name), and why. `delivery_count` and `message` None: the broker did not write it."""

    group_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int | None = None
    message: str | None = None


class DeadLetterStatus(StrEnum):
    """Whether the headers could be read: ``not_a_dead_letter`` has none of them."""

    DECODED = "decoded"
    NOT_A_DEAD_LETTER = "not_a_dead_letter"
    MALFORMED_HEADERS = "malformed_headers"


def read_dead_letter(headers: bytes) -> ShareDeadLetter:
    """The dead letter in the bytes of a record's headers. Of a record that died more than once, which has headers of
    each death, the newest one. Raises UnsupportedRecord when no header is a broker's, MalformedRecord when one is
    missing, or no number that it can be."""
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
    """The headers of the newest death by what follows the prefix; others are left out. A broker writes its headers in
    one order: the first of them again is the next death, whose count and message may be missing."""
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        own = name.removeprefix(PREFIX).decode("utf-8", errors="replace")
        if not name.startswith(PREFIX) or own not in _KNOWN:
            continue
        if own in found and own == next(iter(found)):
            found.pop(_COUNT, None)
            found.pop(_MESSAGE, None)
        found[own] = value
    return {own: _decoded(own, value) for own, value in found.items()}


def _decoded(name: str, value: bytes | None) -> str:
    if value is None:
        raise _malformed(f"header {name} is null")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed(f"header {name} is not UTF-8") from None


def _text(texts: Mapping[str, str], name: str) -> str:
    if name not in texts:
        raise _malformed(f"header {name} is missing")
    return texts[name]


def _number(texts: Mapping[str, str], name: str, bits: int) -> int:
    text = _text(texts, name)
    if not _NUMBER.fullmatch(text) or int(text) >> bits:
        raise _malformed(f"header {name} is not a number of {bits} bits")
    return int(text)


def _malformed(fault: str) -> MalformedRecord:
    return MalformedRecord(fault, part=_PART, position=0)
