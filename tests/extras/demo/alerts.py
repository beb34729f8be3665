"""Which alerts of ``dashboards/prometheus/acktrail-alerts.yml`` a fault raises."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from acktrail.model.queue_status import QueueStatus
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail_demo.faults.library import StateFault

_OF_RULES: Final = MappingProxyType(
    {"export_complete": "AcktrailGapRecorded", "records_quarantined": "AcktrailRecordsQuarantined"}
)
_OF_STATUSES: Final = MappingProxyType(
    {
        QueueStatus.REJECT_STORM: "AcktrailRejectStorm",
        QueueStatus.STATE_UNKNOWN: "AcktrailStatusUnknown",
        QueueStatus.UNATTENDED: "AcktrailGroupUnattended",
    }
)


def alerts_of(fault: StateFault) -> frozenset[str]:
    """Raised by the run that shows the fault. Some wait for a while; AcktrailReconcileMismatch needs a second run."""
    expected = fault.expected
    found = {alert for rule, alert in _OF_RULES.items() if rule in expected.findings}
    if any(_is_critical(name.rpartition(".")[2]) for name in expected.failing):
        found.add("AcktrailCriticalExpectationFailed")
    if any(map(_is_critical, expected.findings)):
        found.add("AcktrailCriticalFinding")
    if expected.status in _OF_STATUSES:
        found.add(_OF_STATUSES[expected.status])
    return frozenset(found)


def _is_critical(rule: str) -> bool:
    return rule_catalogue().by_id[rule].severity is QualitySeverity.CRITICAL
