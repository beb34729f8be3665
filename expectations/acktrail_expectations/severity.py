"""How bad it is when an expectation does not hold."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Severity"]


class Severity(StrEnum):
    """What a failure means for the run."""

    WARNING = "warning"
    """Legal, or explained by things outside the tables: somebody should know."""
    ERROR = "error"
    """Something is wrong or lost and is said to be so; what is published is still true."""
    CRITICAL = "critical"
    """What would be published is wrong, or acting on it would lose records: the run stops."""
