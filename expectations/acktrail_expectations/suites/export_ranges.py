"""What must hold of ``export_ranges``.

Records that Kafka pruned before they were exported are lost, and the exporter says so: an error, since states replayed
after the next snapshots are right again. A hole that nobody recorded is critical: then nothing says what is missing.
"""

from __future__ import annotations

from acktrail_expectations.check import Check, at_least, equal
from acktrail_expectations.gx.engine import core
from acktrail_expectations.severity import Severity

__all__ = ["export_ranges"]


def export_ranges() -> tuple[Check, ...]:
    """Checks of a frame that ``frames.export_ranges`` made."""
    return (*_shape_checks(), *_contiguity_checks(), *_count_checks())


def _shape_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="range_first_le_last",
            expectation=at_least("last_offset", "first_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="gap_first_le_last",
            expectation=at_least("gap_last", "gap_first"),
            severity=Severity.CRITICAL,
            only_where="recorded gap",
        ),
        Check(
            rule="range_below_log_end",
            expectation=at_least("log_end_offset", "end"),
            severity=Severity.ERROR,
        ),
        Check(
            rule="one_state_topic",
            expectation=equal("state_topic_id", "first_state_topic_id"),
            severity=Severity.CRITICAL,
        ),
    )


def _contiguity_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="export_contiguous",
            expectation=equal("begin", "expected_begin"),
            severity=Severity.CRITICAL,
            only_where="range that follows another",
        ),
        Check(
            rule="records_follow_gap",
            expectation=equal("first_offset", "after_gap"),
            severity=Severity.CRITICAL,
            only_where="records after a recorded gap",
        ),
        Check(
            rule="export_begins_at_log_start",
            expectation=at_least("log_start_offset", "first_begin"),
            severity=Severity.CRITICAL,
            only_where="first range of a state partition",
        ),
        Check(
            rule="nothing_pruned_before_export",
            expectation=core.ExpectColumnValuesToBeNull(column="lost_first"),
            severity=Severity.ERROR,
        ),
    )


def _count_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="records_accounted_for",
            expectation=equal("records_read", "accounted_records"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="records_stored",
            expectation=equal("records_read", "stored_records"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="range_dense",
            expectation=equal("records_read", "span_records"),
            severity=Severity.ERROR,
        ),
    )
