"""Fences that a key audit made exact: of the newest audit of each expansion."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import EXPANSION_FENCES

EXACT: Final = "exact"
_BRACKETED: Final = "bracketed"
_KEYS: Final = ("cluster_id", "event_id", "partition")
_AUDITED: Final = ("fence_exact", "last_record_offset")


def with_exact_fences(fences: pa.Table, key_audits: pa.Table) -> pa.Table:
    """`fences` (``EXPANSION_FENCES``) with `fence_exact` from those of `key_audits` (``KEY_AUDITS``, one row an
    expansion and source) whose confidence is exact; theirs is exact then, and that of no other interval; and with
    `last_record_offset` from all of them. A partition whose low fence is not known (its log lost records) gets none."""
    is_exact = pc.fill_null(pc.equal(key_audits["confidence"], EXACT), fill_value=False)
    exact = pc.if_else(is_exact, key_audits["fence_exact"], pa.scalar(None, pa.int64()))
    place = key_audits.column_names.index("fence_exact")
    audited = key_audits.set_column(place, "fence_exact", exact).select([*_KEYS, *_AUDITED])
    own = fences.drop_columns(list(_AUDITED)).append_column("row", pa.array(range(fences.num_rows), pa.int64()))
    both = own.join(audited, keys=list(_KEYS), join_type="left outer")
    both = both.take(pc.sort_indices(both, [("row", "ascending")]))
    for name in _AUDITED:
        known = pc.if_else(both["fence_low"].is_valid(), both[name], pa.scalar(None, pa.int64()))
        both = both.set_column(both.column_names.index(name), name, known)
    is_wide = pc.fill_null(pc.not_equal(both["fence_low"], both["fence_high"]), fill_value=True)
    was_exact = pc.and_(pc.equal(both["confidence"], EXACT), is_wide)
    before = pc.if_else(was_exact, _BRACKETED, both["confidence"])
    confidence = pc.if_else(both["fence_exact"].is_valid(), EXACT, before)
    both = both.set_column(both.column_names.index("confidence"), "confidence", confidence)
    return both.select(EXPANSION_FENCES.names).cast(EXPANSION_FENCES)
