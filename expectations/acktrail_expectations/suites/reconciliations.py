"""What must hold of ``reconciliations``.

Critical is what harms a reader who acts on it. `durable_ahead`: the replayed start offset is further than the
cluster's; a reset to it skips records. `past_log_end`: the share partition itself skips records. `live_ahead` and
`missing_state` are errors: the tables lack something, and acting on them delivers records again, which share groups
allow for. `orphan_state` (leftovers of a deletion), `before_log_start` (legal), `not_authorized` and `unknown` are
warnings.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.model.reconciliation import Verdict
from acktrail_expectations.gx.suite_check import SuiteCheck, equal, none_of, not_null, one_of, rule_check, unique
from acktrail_expectations.suites.frame_columns import frame_of, known_true, where

RECONCILIATION_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "verdict", "reason", "moved", "durable_start_offset", "durable_lag",
    "described_start_offset_after", "described_lag_after", "log_end_offset_before", "log_end_offset_after",
)  # fmt: skip
"""The columns of ``RECONCILIATIONS`` that the frame is made of."""


_STOOD_STILL: Final = "match whose values stood still"

RECONCILIATION_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("share_partition_once", unique("group_id", "topic_id", "partition")),
    rule_check("verdict_given", not_null("verdict")),
    rule_check("verdict_known", one_of("verdict", *(verdict.value for verdict in Verdict))),
    rule_check("verdict_has_reason", not_null("reason")),
    rule_check(
        "match_has_same_start_offset", equal("durable_start_offset", "agreed_start_offset"), only_where=_STOOD_STILL
    ),
    rule_check("match_has_same_lag", equal("durable_lag", "agreed_lag"), only_where=_STOOD_STILL),
    rule_check("no_durable_ahead", none_of("verdict", Verdict.DURABLE_AHEAD.value)),
    rule_check("no_past_log_end", none_of("verdict", Verdict.PAST_LOG_END.value)),
    rule_check("no_live_ahead", none_of("verdict", Verdict.LIVE_AHEAD.value)),
    rule_check("no_missing_state", none_of("verdict", Verdict.MISSING_STATE.value)),
    rule_check("no_orphan_state", none_of("verdict", Verdict.ORPHAN_STATE.value)),
    rule_check("no_before_log_start", none_of("verdict", Verdict.BEFORE_LOG_START.value)),
    rule_check("no_not_authorized", none_of("verdict", Verdict.NOT_AUTHORIZED.value)),
    rule_check("no_unknown", none_of("verdict", Verdict.UNKNOWN.value)),
)
"""Rules on the frame below."""


def reconciliations_frame(reconciliations: pa.Table) -> pd.DataFrame:
    """One run's reconciliations.

    Returns:
        ``RECONCILIATION_COLUMNS`` and, missing unless the verdict is a match of values that did not move:
        `agreed_start_offset` (described), `agreed_lag` (described, where the log did not grow either).
    """
    frame = frame_of(reconciliations.select(list(RECONCILIATION_COLUMNS)))
    moved = np.asarray(frame["moved"].fillna(value=True), dtype=np.bool_)
    agreed = known_true(frame["verdict"] == Verdict.MATCH.value) & ~moved
    still = known_true(frame["log_end_offset_before"] == frame["log_end_offset_after"])
    return frame.assign(
        agreed_start_offset=where(frame["described_start_offset_after"], agreed),
        agreed_lag=where(frame["described_lag_after"], agreed & still),
    )
