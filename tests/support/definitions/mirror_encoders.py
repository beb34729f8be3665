"""Records of MirrorMaker 2's internal topics as MirrorMaker writes them (``acktrail_migration``)."""

from __future__ import annotations

from typing import Final

from acktrail.format.wire.primitives import INT16, INT32, INT64
from acktrail_migration.mirror_evidence import MirrorPair

_LONGEST: Final = (1 << 15) - 1


def encode_pair(pair: MirrorPair, metadata: str = "") -> tuple[bytes, bytes]:
    """Key and value of an offset sync, or of a checkpoint with `metadata`. Raises ValueError: a string is too long for
    Kafka."""
    key = _string(pair.topic) + INT32.pack(pair.partition)
    offsets = INT64.pack(pair.upstream_offset) + INT64.pack(pair.downstream_offset)
    if pair.group_id is None:
        return key, offsets
    return _string(pair.group_id) + key, INT16.pack(0) + offsets + _string(metadata)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    if len(raw) > _LONGEST:
        raise ValueError(f"{len(raw)} bytes do not fit into a string of Kafka's, which has at most {_LONGEST}")
    return INT16.pack(len(raw)) + raw
