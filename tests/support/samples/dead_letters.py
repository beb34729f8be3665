"""The headers of dead letters, as a broker writes them (``ShareGroupDLQStateManager`` of Kafka 4.4)."""

from __future__ import annotations

from acktrail.format.wire.dead_letter_headers import ShareDeadLetter

__all__ = ["headers_of"]


def headers_of(letter: ShareDeadLetter) -> list[tuple[bytes, bytes | None]]:
    """As a broker writes them: a header each, none for what it does not know."""
    fields = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group_id,
        "delivery.count": letter.delivery_count,
        "message": letter.message,
    }
    return [
        (f"__dlq.errors.{name}".encode(), str(value).encode()) for name, value in fields.items() if value is not None
    ]
