"""Which dialect copied records are read in: the one that was named, or the one that a sample agrees on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from acktrail.drafts.dialects import dialect_named
from acktrail.errors import ConfigurationError
from acktrail.wire.dialects.detect_layout import detect_layout
from acktrail.wire.dialects.released import KAFKA_4_2, Dialect
from acktrail.wire.raw_record import RawRecord

__all__ = ["AUTO", "choose_dialect"]

AUTO: Final = "auto"


def choose_dialect(name: str, sample: Callable[[], Iterable[RawRecord]]) -> Dialect[Any]:
    """The dialect called `name`; for ``auto`` the one that every telling record of `sample` is written in.

    Records that nobody can tell apart (tombstones alone, damage alone) are read as Kafka 4.2's: every shipped dialect
    says the same of them. `sample` is called for ``auto`` only.

    Raises:
        UnknownName: there is no such dialect.
        ConfigurationError: the sample does not agree, or is ambiguous; the message has both readings.
    """
    if name != AUTO:
        return dialect_named(name)
    try:
        return dialect_named(detect_layout((raw.key, raw.value) for raw in sample()).dialect)
    except ConfigurationError as error:
        if error.data.get("readings"):
            raise
        return KAFKA_4_2
