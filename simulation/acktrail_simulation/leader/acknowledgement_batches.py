"""Acknowledgements of acquired records, and whether a request with them is valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class AcknowledgeType(IntEnum):
    """By number, as in ShareFetch and ShareAcknowledge."""

    GAP = 0
    """There is no record at the offset (compaction, a transaction marker)."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The lock starts again, nothing else changes (KIP-1222, Kafka 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBatch:
    """Offsets `first_offset` to `last_offset`, both inclusive; one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]

    def type_at(self, offset: int) -> AcknowledgeType:
        """The type for an offset."""
        return AcknowledgeType(self.types[0 if len(self.types) == 1 else offset - self.first_offset])


def are_well_formed(batches: Iterable[AcknowledgementBatch]) -> bool:
    """Whether a broker accepts them, or refuses them all (INVALID_REQUEST;
    ``KafkaApis.validateAcknowledgementBatches``).

    Batches ascend, with one type or one for each offset. KIP-932 forbids batches to overlap; a broker accepts one
    shared offset, and so does this.
    """
    before = -1
    for batch in batches:
        in_order = before <= batch.first_offset <= batch.last_offset
        if not in_order or len(batch.types) not in (1, batch.last_offset - batch.first_offset + 1):
            return False
        before = batch.last_offset
    return True
