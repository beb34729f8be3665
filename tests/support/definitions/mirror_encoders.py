"""Records of MirrorMaker 2's internal topics as MirrorMaker writes them (``acktrail_plugins.migration``)."""

from __future__ import annotations

from typing import Final

from acktrail.format.wire.primitives import INT16, INT32, INT64
from acktrail_plugins.migration.mirror_evidence import CHECKPOINT_VERSION, MirrorCheckpoint, OffsetSync

_LONGEST: Final = (1 << 15) - 1


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of an offset sync. Raises ValueError: a string is too long for Kafka."""
    key = _string(sync.topic) + INT32.pack(sync.partition)
    return key, INT64.pack(sync.upstream_offset) + INT64.pack(sync.downstream_offset)


def encode_checkpoint(checkpoint: MirrorCheckpoint) -> tuple[bytes, bytes]:
    """Key and value of a checkpoint. Raises as `encode_offset_sync`."""
    key = _string(checkpoint.group_id) + _string(checkpoint.topic) + INT32.pack(checkpoint.partition)
    offsets = INT64.pack(checkpoint.upstream_offset) + INT64.pack(checkpoint.downstream_offset)
    return key, INT16.pack(CHECKPOINT_VERSION) + offsets + _string(checkpoint.metadata)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    if len(raw) > _LONGEST:
        raise ValueError(f"{len(raw)} bytes do not fit into a string of Kafka's, which has at most {_LONGEST}")
    return INT16.pack(len(raw)) + raw
