"""What must hold of ``reconciliations``.

Critical is what harms whoever acts on it. `durable_ahead`: the replayed start offset is further than the cluster's; a
reset to it skips records. `past_log_end`: the share partition itself skips records. `live_ahead` and `missing_state`
are errors: the tables lack something, and acting on them delivers records again, which share groups allow for.
`orphan_state` (leftovers of a deletion), `before_log_start` (legal), `not_authorized` and `unknown` are warnings.
"""

from __future__ import annotations

from acktrail.model.reconciliation import Verdict
from acktrail_expectations.check import Check, equal
from acktrail_expectations.gx.engine import core
from acktrail_expectations.severity import Severity

__all__ = ["reconciliations"]


def reconciliations() -> tuple[Check, ...]:
    """Checks of a frame that ``frames.reconciliations`` made."""
    return (
        Check(
            rule="share_partition_once",
            expectation=core.ExpectCompoundColumnsToBeUnique(column_list=["group_id", "topic_id", "partition"]),
            severity=Severity.CRITICAL,
        ),
        *_verdict_checks(),
        *_agreement_checks(),
        _without(Verdict.DURABLE_AHEAD, Severity.CRITICAL),
        _without(Verdict.PAST_LOG_END, Severity.CRITICAL),
        _without(Verdict.LIVE_AHEAD, Severity.ERROR),
        _without(Verdict.MISSING_STATE, Severity.ERROR),
        _without(Verdict.ORPHAN_STATE, Severity.WARNING),
        _without(Verdict.BEFORE_LOG_START, Severity.WARNING),
        _without(Verdict.NOT_AUTHORIZED, Severity.WARNING),
        _without(Verdict.UNKNOWN, Severity.WARNING),
    )


def _verdict_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="verdict_given",
            expectation=core.ExpectColumnValuesToNotBeNull(column="verdict"),
            severity=Severity.ERROR,
        ),
        Check(
            rule="verdict_known",
            expectation=core.ExpectColumnValuesToBeInSet(
                column="verdict", value_set=[verdict.value for verdict in Verdict]
            ),
            severity=Severity.ERROR,
        ),
        Check(
            rule="verdict_has_reason",
            expectation=core.ExpectColumnValuesToNotBeNull(column="reason"),
            severity=Severity.ERROR,
        ),
    )


def _agreement_checks() -> tuple[Check, ...]:
    """A match of values that stood still says that they are the same."""
    return (
        Check(
            rule="match_has_same_start_offset",
            expectation=equal("durable_start_offset", "agreed_start_offset"),
            severity=Severity.CRITICAL,
            only_where="match whose values stood still",
        ),
        Check(
            rule="match_has_same_lag",
            expectation=equal("durable_lag", "agreed_lag"),
            severity=Severity.CRITICAL,
            only_where="match whose values stood still",
        ),
    )


def _without(verdict: Verdict, severity: Severity) -> Check:
    return Check(
        rule=f"no_{verdict.value}",
        expectation=core.ExpectColumnValuesToNotBeInSet(column="verdict", value_set=[verdict.value]),
        severity=severity,
    )
