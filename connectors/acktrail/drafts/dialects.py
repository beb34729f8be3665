"""The dialects by name: what ``--dialect`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from acktrail.drafts import checkpoint_layout, control_layout, snapshot_layout
from acktrail.drafts.draft_records import CheckpointRecord, ControlRecord, DraftRecord
from acktrail.errors import UnknownName
from acktrail.wire.dialects.released import KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, Dialect, RecordLocation

__all__ = [
    "DIALECTS",
    "GENERATION_I",
    "GENERATION_II",
    "GENERATION_III",
    "GENERATION_IV",
    "GENERATION_IV_JSON",
    "dialect_named",
]

GENERATION_I: Final[Dialect[ControlRecord]] = Dialect(
    name="i",
    summary="draft: SHARE_CHECKPOINT and SHARE_DELTA control records with EndOffset",
    location=RecordLocation.CONTROL_BATCH,
    shipped=False,
    decode=control_layout.decode_i,
    encode=control_layout.encode_i,
)
GENERATION_II: Final[Dialect[ControlRecord]] = Dialect(
    name="ii",
    summary="draft: control records whose deltas are chained by BackOffset",
    location=RecordLocation.CONTROL_BATCH,
    shipped=False,
    decode=control_layout.decode_ii,
    encode=control_layout.encode_ii,
)
GENERATION_III: Final[Dialect[CheckpointRecord]] = Dialect(
    name="iii",
    summary="draft: ShareCheckpoint and ShareDelta with DeltaIndex on a compacted state topic",
    location=RecordLocation.STATE_TOPIC,
    shipped=False,
    decode=checkpoint_layout.decode,
    encode=checkpoint_layout.encode,
)
GENERATION_IV: Final[Dialect[DraftRecord]] = Dialect(
    name="iv",
    summary="draft: ShareSnapshot and ShareUpdate with StateEpoch, by the document's table",
    location=RecordLocation.STATE_TOPIC,
    shipped=False,
    decode=snapshot_layout.decode_table,
    encode=snapshot_layout.encode_table,
)
GENERATION_IV_JSON: Final[Dialect[DraftRecord]] = Dialect(
    name="iv-json",
    summary="draft: ShareSnapshot and ShareUpdate by the document's JSON schemas",
    location=RecordLocation.STATE_TOPIC,
    shipped=False,
    decode=snapshot_layout.decode_json_schema,
    encode=snapshot_layout.encode_json_schema,
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
