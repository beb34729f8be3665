"""What must hold of ``partition_expansions`` and ``expansion_fences``: expansions that follow each other, and fences
that prove what verdicts say."""

from __future__ import annotations

import datetime as dt
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.expansion.lost_proofs import provable_fences
from acktrail.model.expansion.partition_ledger import ExpansionStatus
from acktrail_expectations.gx.suite_check import SuiteCheck, at_least, equal, rule_check
from acktrail_expectations.suites.frame_columns import frame_of, known_true, where
from acktrail_expectations.suites.partition_observations import epoch_ms, with_ms

EXPANSION_COLUMNS: Final = (
    "event_id", "topic_id", "topic", "sequence", "old_count", "new_count", "first_seen_new_at", "settles_at", "status",
)  # fmt: skip
"""The columns of ``PARTITION_EXPANSIONS`` that the frames are made of."""
FENCE_COLUMNS: Final = (
    "event_id", "topic_id", "topic", "partition", "fence_low", "fence_high", "fence_exact", "log_start_offset",
)  # fmt: skip
"""The columns of ``EXPANSION_FENCES`` that the frames are made of."""

SETTLE_TIMES: Final = 2
_UNKNOWN_SETTLE_MS: Final = 900_000
"""After how many settle times an expansion is overdue."""

_OF_KEY_AUDIT: Final = "fence of a key audit"

EXPANSION_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check(
        "expansion_events_chain", equal("old_count", "count_before"), only_where="expansion that follows another"
    ),
    rule_check("expansion_has_every_fence", equal("fences", "old_count")),
    rule_check("expansion_settles", at_least("overdue_ms", "settling_ms"), only_where="settling expansion"),
)
"""Rules on `expansions_frame`."""

FENCE_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("fence_low_le_high", at_least("fence_high", "fence_low")),
    rule_check("fence_exact_ge_low", at_least("fence_exact", "fence_low"), only_where=_OF_KEY_AUDIT),
    rule_check("fence_exact_le_high", at_least("fence_high", "fence_exact"), only_where=_OF_KEY_AUDIT),
    rule_check(
        "fence_not_expired",
        at_least("fence_low", "needed_log_start"),
        only_where="fence that could prove an open verdict",
    ),
)
"""Rules on `fences_frame`."""


def expansions_frame(expansions: pa.Table, fences: pa.Table, *, now: dt.datetime) -> pd.DataFrame:
    """Every expansion, in the order of its topic's.

    Returns:
        ``EXPANSION_COLUMNS`` (instants as ms) and `count_before` (the new count of the expansion before; missing in a
        topic's first one), `fences` (different sources below the old count), `settling_ms` (`now`) and `overdue_ms`,
        both missing where the expansion is settled. One that no look shows on every broker is overdue after half an
        hour.
    """
    frame = frame_of(with_ms(expansions.select(list(EXPANSION_COLUMNS)), "first_seen_new_at", "settles_at"))
    frame = frame.sort_values(["topic_id", "sequence"], kind="stable", ignore_index=True)
    is_settling = known_true(frame["status"] == ExpansionStatus.SETTLING.value)
    first_seen = frame["first_seen_new_ms"]
    settles = frame["settles_ms"].fillna(first_seen + _UNKNOWN_SETTLE_MS)
    return frame.assign(
        count_before=frame.groupby("topic_id")["new_count"].shift(),
        fences=_fence_counts(expansions, fences, frame["event_id"]),
        settling_ms=where(pd.Series([epoch_ms(now)] * len(frame), dtype="Int64"), is_settling),
        overdue_ms=where(first_seen + SETTLE_TIMES * (settles - first_seen), is_settling),
    )


def fences_frame(fences: pa.Table, audits: pa.Table) -> pd.DataFrame:
    """Every fence. `audits`: ``OPEN_COLUMNS`` of ``ORDERING_AUDITS``.

    Returns:
        ``FENCE_COLUMNS`` and `needed_log_start`: the log start of a source whose records could prove an open verdict;
        missing elsewhere.
    """
    frame, needed = frame_of(fences.select(list(FENCE_COLUMNS))), provable_fences(audits)
    keys = set(zip(needed["event_id"].to_pylist(), needed["partition"].to_pylist(), strict=True))
    own = zip(fences["event_id"].to_pylist(), fences["partition"].to_pylist(), strict=True)
    is_needed = pd.Series([key in keys for key in own], index=frame.index, dtype="bool")
    return frame.assign(needed_log_start=where(frame["log_start_offset"], is_needed))


def _fence_counts(expansions: pa.Table, fences: pa.Table, event_ids: pd.Series) -> pd.Series:
    counts = expansions.select(["event_id", "old_count"]).group_by("event_id").aggregate([("old_count", "max")])
    rows = fences.select(["event_id", "partition"]).join(counts, "event_id", join_type="inner")
    sources = rows.filter(pc.less(rows["partition"], rows["old_count_max"]))
    found = sources.group_by("event_id").aggregate([("partition", "count_distinct")]).to_pylist()
    known = {row["event_id"]: row["partition_count_distinct"] for row in found}
    return event_ids.map(lambda event_id: known.get(event_id, 0)).astype("Int64")
