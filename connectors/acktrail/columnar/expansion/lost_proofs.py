"""Fences whose records could prove a verdict on order that the observations leave open."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.expansion.ordering import OrderingVerdict

OPEN_VERDICTS: Final = (OrderingVerdict.POSSIBLE_VIOLATION.value, OrderingVerdict.INDETERMINATE.value)
"""Verdicts that a narrower fence can turn into a proof; an unknown fence has no records to look for."""
OPEN_COLUMNS: Final = (
    "source_event_id", "source_partition", "verdict", "source_before", "source_at", "fence_low", "fence_high",
)  # fmt: skip
"""The columns of ``ORDERING_AUDITS`` that show it."""


def provable_fences(audits: pa.Table) -> pa.Table:
    """The fences, as `event_id` and `partition`, each once, that an open verdict of `audits` (``OPEN_COLUMNS``) rests
    on and that prove it once they are exact.

    By ``tests/definitions/ordering_audit.py``: with its fence at one offset a verdict is safe if the source was there
    before the destination was begun, and a violation if it was not there yet once it was begun for certain. So an exact
    fence proves something at most where the source was past the low end before, or below the high end then. A verdict
    without an earlier reading whose source was past the high end then stays open for good. Cost: O(rows).
    """
    is_open = pc.is_in(audits["verdict"], value_set=pa.array(OPEN_VERDICTS, pa.string()))
    is_safe = pc.fill_null(pc.greater_equal(audits["source_before"], audits["fence_low"]), fill_value=False)
    is_broken = pc.fill_null(pc.less(audits["source_at"], audits["fence_high"]), fill_value=False)
    rows = audits.filter(pc.and_(is_open, pc.or_(is_safe, is_broken)))
    keys = rows.select(["source_event_id", "source_partition"]).rename_columns(["event_id", "partition"])
    return keys.group_by(["event_id", "partition"], use_threads=False).aggregate([])
