"""Whose findings are open: those of the newest reconciliation, and those of the newest audit of expansions.

Each of both opens and closes the findings of its own rules. Nothing else does.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from acktrail.model.rules.catalogue import EXPANSION_RULES
from acktrail.tables.delta.store import Tables

AUDITS: Final = "expansions/findings"
"""The app id in ``findings`` whose number is that of the newest audit of expansions that opened or closed any."""
AUDIT_RULES: Final = frozenset(rule.id for rule in EXPANSION_RULES)
"""The rules whose findings are those of audits of expansions."""


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The newest reconciliation and the newest audit of expansions, as ``findings`` name them. None: there is none, or
    it is not known which."""

    reconciliation: str | None
    audit: str | None

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Those that are known."""
        return tuple(run_id for run_id in (self.reconciliation, self.audit) if run_id is not None)

    def is_open(self, rule: str | None, run_id: str | None) -> bool | None:
        """Whether a finding of `rule` that the run `run_id` saw last is open; None: not known."""
        newest = self.audit if rule in AUDIT_RULES else self.reconciliation
        return None if newest is None else run_id == newest


def audit_run_id(number: int) -> str:
    """The run id of the findings of one audit of expansions."""
    return f"expansion-audit-{number}"


def newest_audit(tables: Tables) -> str | None:
    """The run id of the findings of the newest audit of expansions; None: none had any."""
    number = tables.transaction_version("findings", AUDITS)
    return None if number is None else audit_run_id(number)


def newest_reconciliation(tables: Tables) -> tuple[str | None, dt.datetime | None]:
    """The newest reconciliation that succeeded, and when; None: there is none."""
    noted = tables.rows("reconcile_checks", columns=["run_id", "reconciled_at"])
    return (noted[0]["run_id"], noted[0]["reconciled_at"]) if noted else (None, None)


def open_runs(tables: Tables) -> OpenRuns:
    """As of now. Raises ConfigurationError, RetryableError: a table cannot be read."""
    return OpenRuns(newest_reconciliation(tables)[0], newest_audit(tables))
