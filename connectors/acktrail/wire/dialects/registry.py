"""The dialects by name: what ``--dialect`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from acktrail.errors import UnknownName
from acktrail.model.generations.records import CheckpointRecord, ControlRecord, DraftRecord
from acktrail.model.records import StateRecord
from acktrail.wire import state_record
from acktrail.wire.dialects import checkpoint_records, control_records, draft_records, kafka_4_0, kafka_4_1

__all__ = [
    "DIALECTS",
    "GENERATION_I",
    "GENERATION_II",
    "GENERATION_III",
    "GENERATION_IV",
    "GENERATION_IV_JSON",
    "KAFKA_4_0",
    "KAFKA_4_1",
    "KAFKA_4_2",
    "Carrier",
    "Dialect",
    "dialect_named",
]

RecordT = TypeVar("RecordT")


class Carrier(StrEnum):
    """Where records of a dialect lie."""

    STATE_TOPIC = "state_topic"
    CONTROL_BATCH = "control_batch"
    """In control batches of the topic itself; from files alone, for a live cluster's types 5 and 6 are KRaft's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[RecordT]):
    """One byte form: `decode` takes key and value and raises MalformedRecord or UnsupportedRecord, `encode` is its
    inverse and raises ValueError for what the dialect has no room for. `shipped`: a release wrote it.
    """

    name: str
    summary: str
    carrier: Carrier
    shipped: bool
    decode: Callable[[bytes | None, bytes | None], RecordT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]]


KAFKA_4_0: Final[Dialect[StateRecord]] = Dialect(
    name="4.0",
    summary="Kafka 4.0: uint16 snapshot epoch, no timestamps",
    carrier=Carrier.STATE_TOPIC,
    shipped=True,
    decode=kafka_4_0.decode,
    encode=kafka_4_0.encode,
)
KAFKA_4_1: Final[Dialect[StateRecord]] = Dialect(
    name="4.1",
    summary="Kafka 4.1: int32 snapshot epoch, timestamps",
    carrier=Carrier.STATE_TOPIC,
    shipped=True,
    decode=kafka_4_1.decode,
    encode=kafka_4_1.encode,
)
KAFKA_4_2: Final[Dialect[StateRecord]] = Dialect(
    name="4.2",
    summary="Kafka 4.2 and later: as 4.1, with the delivery complete count; reads 4.1 too",
    carrier=Carrier.STATE_TOPIC,
    shipped=True,
    decode=state_record.decode,
    encode=state_record.encode,
)
GENERATION_I: Final[Dialect[ControlRecord]] = Dialect(
    name="i",
    summary="draft: SHARE_CHECKPOINT and SHARE_DELTA control records with EndOffset",
    carrier=Carrier.CONTROL_BATCH,
    shipped=False,
    decode=control_records.decode_i,
    encode=control_records.encode_i,
)
GENERATION_II: Final[Dialect[ControlRecord]] = Dialect(
    name="ii",
    summary="draft: control records whose deltas are chained by BackOffset",
    carrier=Carrier.CONTROL_BATCH,
    shipped=False,
    decode=control_records.decode_ii,
    encode=control_records.encode_ii,
)
GENERATION_III: Final[Dialect[CheckpointRecord]] = Dialect(
    name="iii",
    summary="draft: ShareCheckpoint and ShareDelta with DeltaIndex on a compacted state topic",
    carrier=Carrier.STATE_TOPIC,
    shipped=False,
    decode=checkpoint_records.decode,
    encode=checkpoint_records.encode,
)
GENERATION_IV: Final[Dialect[DraftRecord]] = Dialect(
    name="iv",
    summary="draft: ShareSnapshot and ShareUpdate with StateEpoch, by the document's table",
    carrier=Carrier.STATE_TOPIC,
    shipped=False,
    decode=draft_records.decode_table,
    encode=draft_records.encode_table,
)
GENERATION_IV_JSON: Final[Dialect[DraftRecord]] = Dialect(
    name="iv-json",
    summary="draft: ShareSnapshot and ShareUpdate by the document's JSON schemas",
    carrier=Carrier.STATE_TOPIC,
    shipped=False,
    decode=draft_records.decode_json_schema,
    encode=draft_records.encode_json_schema,
)

DIALECTS: Final[Mapping[str, Dialect[Any]]] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            KAFKA_4_0,
            KAFKA_4_1,
            KAFKA_4_2,
            GENERATION_I,
            GENERATION_II,
            GENERATION_III,
            GENERATION_IV,
            GENERATION_IV_JSON,
        )
    }
)

_SAME_BYTES: Final[Mapping[str, str]] = MappingProxyType({"4.3": "4.2", "4.4": "4.2"})


def dialect_named(name: str) -> Dialect[Any]:
    """The dialect called `name`; a later release's number means the dialect it still writes.

    Raises:
        UnknownName: when there is none; it carries the nearest names.
    """
    found = DIALECTS.get(_SAME_BYTES.get(name, name))
    if found is None:
        raise UnknownName("dialect", name, nearest=get_close_matches(name, DIALECTS) or tuple(DIALECTS))
    return found
