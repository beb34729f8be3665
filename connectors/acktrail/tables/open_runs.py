"""Whose findings are open: those of the newest reconciliation, and those of the newest audit of each branch.

Each of them opens and closes the findings of its own rules. Nothing else does. Audits are counted in ``findings`` by an
app id, the name of the branch's audit: 7 under ``NAME`` is the number of the run ``NAME-7``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from acktrail.branches import branches
from acktrail.model.rules.catalogue import BRANCH_RULES
from acktrail.tables.delta.store import Tables


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The newest reconciliation and the newest audit of each branch by its name, as ``findings`` name them. None, or
    not among `audits`: there is none, or it is not known which."""

    reconciliation: str | None
    audits: Mapping[str, str]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Those that are known."""
        return tuple(run_id for run_id in (self.reconciliation, *self.audits.values()) if run_id is not None)

    def newest(self, rule: str | None) -> str | None:
        """The run that opens and closes findings of `rule`; None: not known."""
        audit = BRANCH_RULES.get(rule or "")
        return self.reconciliation if audit is None else self.audits.get(audit)

    def is_open(self, rule: str | None, run_id: str | None) -> bool | None:
        """Whether a finding of `rule` that the run `run_id` saw last is open; None: not known."""
        newest = self.newest(rule)
        return None if newest is None else run_id == newest


def audit_run_id(audit: str, number: int) -> str:
    """The run id of the findings of one audit of a branch."""
    return f"{audit}-{number}"


def newest_audits(tables: Tables) -> dict[str, str]:
    """The run id of the findings of each branch's newest audit that opened or closed any, by the audit's name."""
    numbers = {each.audit: tables.transaction_version("findings", each.audit) for each in branches() if each.audit}
    return {audit: audit_run_id(audit, number) for audit, number in numbers.items() if number is not None}


def newest_reconciliation(tables: Tables) -> tuple[str | None, dt.datetime | None]:
    """The newest reconciliation that succeeded, and when; None: there is none."""
    noted = tables.rows("reconcile_checks", columns=["run_id", "reconciled_at"])
    return (noted[0]["run_id"], noted[0]["reconciled_at"]) if noted else (None, None)


def open_runs(tables: Tables) -> OpenRuns:
    """As of now. Raises ConfigurationError, RetryableError: a table cannot be read."""
    return OpenRuns(newest_reconciliation(tables)[0], newest_audits(tables))
