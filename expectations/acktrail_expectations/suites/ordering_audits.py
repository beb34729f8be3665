"""What must hold of ``ordering_audits`` and ``start_audits``: groups kept the order of keys, and skipped nothing.

Only proofs are compared: `safe` and `violation`. A verdict that proves neither is not evaluated, and is never taken for
kept order.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail_expectations.gx.suite_check import SuiteCheck, is_true, one_of, rule_check
from acktrail_expectations.suites.frame_columns import frame_of, known_true, where

AUDIT_COLUMNS: Final = ("event_id", "topic_id", "topic", "group_id", "partition", "verdict")
"""The columns of ``ORDERING_AUDITS`` that the frame is made of."""
START_COLUMNS: Final = ("event_id", "topic_id", "topic", "group_id", "partition", "skipped_records")
"""The columns of ``START_AUDITS`` that the rules compare."""

_PROOFS: Final = (OrderingVerdict.SAFE.value, OrderingVerdict.VIOLATION.value)

ORDERING_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("ordering_verdict_known", one_of("given_verdict", *(verdict.value for verdict in OrderingVerdict))),
    rule_check("ordered_group_kept_order", is_true("ordered_kept"), only_where="proof about a group that needs order"),
    rule_check("group_kept_order", is_true("other_kept"), only_where="proof about a group that is not marked"),
)
"""Rules on `ordering_frame`."""

START_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("new_partition_records_not_skipped", one_of("skipped_records", 0)),
)
"""Rules on the rows of ``START_AUDITS``."""


def ordering_frame(audits: pa.Table, *, ordered: Sequence[str]) -> pd.DataFrame:
    """Every audited destination. `ordered`: patterns (shell style) of the groups that need order.

    Returns:
        ``AUDIT_COLUMNS`` and `given_verdict` (empty where there is none), `ordered_kept` and `other_kept`: whether a
        group of `ordered`, or another one, kept the order; missing where nothing is proven.
    """
    frame = frame_of(audits.select(list(AUDIT_COLUMNS)))
    needs = {group: any(fnmatch.fnmatchcase(group, each) for each in ordered) for group in _groups(audits)}
    is_ordered = np.asarray(frame["group_id"].map(needs).fillna(value=False), dtype=np.bool_)
    kept = (frame["verdict"] == OrderingVerdict.SAFE.value).astype("boolean")
    proven = known_true(frame["verdict"].isin(_PROOFS))
    return frame.assign(
        given_verdict=frame["verdict"].fillna(""),
        ordered_kept=where(kept, proven & is_ordered),
        other_kept=where(kept, proven & ~is_ordered),
    )


def _groups(audits: pa.Table) -> list[str]:
    return [str(group) for group in audits["group_id"].unique().drop_null().to_pylist()]
