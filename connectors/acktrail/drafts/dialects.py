"""The dialects by name: what ``--dialect`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from acktrail.drafts import checkpoint_layout, control_layout, snapshot_layout
from acktrail.errors import UnknownName
from acktrail.wire.dialects.released import KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, Dialect

_DRAFTS: Final[tuple[Dialect[Any], ...]] = (
    Dialect(  # SHARE_CHECKPOINT and SHARE_DELTA control records with EndOffset
        name="i",
        in_control_batches=True,
        shipped=False,
        decode=control_layout.decode_i,
        encode=control_layout.encode_i,
    ),
    Dialect(  # control records whose deltas are chained by BackOffset
        name="ii",
        in_control_batches=True,
        shipped=False,
        decode=control_layout.decode_ii,
        encode=control_layout.encode_ii,
    ),
    Dialect(  # ShareCheckpoint and ShareDelta with DeltaIndex on a compacted state topic
        name="iii", shipped=False, decode=checkpoint_layout.decode, encode=checkpoint_layout.encode
    ),
    Dialect(  # ShareSnapshot and ShareUpdate with StateEpoch, by the document's table
        name="iv", shipped=False, decode=snapshot_layout.decode_table, encode=snapshot_layout.encode_table
    ),
    Dialect(  # ShareSnapshot and ShareUpdate by the document's JSON schemas
        name="iv-json",
        shipped=False,
        decode=snapshot_layout.decode_json_schema,
        encode=snapshot_layout.encode_json_schema,
    ),
)

DIALECTS: Final[Mapping[str, Dialect[Any]]] = MappingProxyType(
    {dialect.name: dialect for dialect in (KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, *_DRAFTS)}
)

_SAME_BYTES: Final[Mapping[str, str]] = MappingProxyType({"4.3": "4.2", "4.4": "4.2"})


def dialect_named(name: str) -> Dialect[Any]:
    """The dialect called `name`; a later release's number means the dialect it still writes.

    Raises:
        UnknownName: when there is none; it carries the nearest names.
    """
    dialect = DIALECTS.get(_SAME_BYTES.get(name, name))
    if dialect is None:
        raise UnknownName("dialect", name, nearest=get_close_matches(name, DIALECTS) or tuple(DIALECTS))
    return dialect
