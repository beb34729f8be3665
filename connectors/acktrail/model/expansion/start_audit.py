"""Did a group get the first records of a partition that an expansion made?"""

from __future__ import annotations

from enum import StrEnum


class StartVerdict(StrEnum):
    """Where a group began with a new partition. OK and SKIPPED_RECORDS are proofs."""

    OK = "ok"
    SKIPPED_RECORDS = "skipped_records"
    UNINITIALIZED = "uninitialized"
    UNKNOWN = "unknown"
