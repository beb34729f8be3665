"""The byte layouts that releases of Kafka write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from acktrail.model.records import StateRecord
from acktrail.wire.dialects import kafka_4_0, kafka_4_1, kafka_4_2

RecordT = TypeVar("RecordT")


class RecordLocation(StrEnum):
    """Where records of a dialect are stored."""

    STATE_TOPIC = "state_topic"
    CONTROL_BATCH = "control_batch"
    """In control batches of the topic itself. Read from files only: on a live cluster types 5 and 6 are KRaft's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[RecordT]):
    """One byte layout of records. `shipped`: a release wrote it.

    `decode` takes key and value and raises MalformedRecord or UnsupportedRecord; `encode` is its inverse and raises
    ValueError for a field or number that the layout cannot hold.
    """

    name: str
    decode: Callable[[bytes | None, bytes | None], RecordT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]]
    location: RecordLocation = RecordLocation.STATE_TOPIC
    shipped: bool = True


KAFKA_4_0: Final[Dialect[StateRecord]] = Dialect(name="4.0", decode=kafka_4_0.decode, encode=kafka_4_0.encode)
"""uint16 snapshot epoch, no timestamps."""

KAFKA_4_1: Final[Dialect[StateRecord]] = Dialect(name="4.1", decode=kafka_4_1.decode, encode=kafka_4_1.encode)
"""int32 snapshot epoch, timestamps."""

KAFKA_4_2: Final[Dialect[StateRecord]] = Dialect(name="4.2", decode=kafka_4_2.decode, encode=kafka_4_2.encode)
"""4.2 and later: as 4.1, with the delivery complete count; reads 4.1 too."""
