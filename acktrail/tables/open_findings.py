"""Whose findings are open: those of the newest reconciliation, and those of the newest audit of each branch, which are
written here.

Each of them opens and closes the findings of its own rules. Nothing else does. Audits are counted in ``findings`` by an
app id, the name of the branch's audit: 7 under ``NAME`` is the number of the run ``NAME-7``.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from acktrail.branches import branches
from acktrail.format.columns.schemas.table_schemas import FINDINGS
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.delta_log_writer import check_expected
from acktrail.tables.delta.store import Tables

SAMPLED: Final = ("group_observations", "offset_observations")
"""What an observation writes on each side of the export."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SAME: Final = ("rule", "subject", "severity", "detail", "last_seen_at")
"""The columns in which an audit that found nothing else agrees with the one before."""


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
        audit = rule_catalogue().audits.get(rule or "")
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


def write_branch_findings(
    tables: Tables, audit: str, cluster_id: str, found: Iterable[Mapping[str, Any]], seen_us: int, done: int | None
) -> dict[str, int]:
    """Open what the `audit` of a branch `found`, close what it did not, in one commit; gives how many of each rule are
    open. `found`: columns of ``FINDINGS`` that the audit knows, with rule and subject. `seen_us`: the newest look that
    it read, microseconds; an audit that finds the same in the same looks changes nothing. `done`: the number of the
    newest audit in ``findings`` before the looks were read; None: there was none.

    Audits have the order of their commits, and not of the looks' clocks. Of two that overlap the second one fails, and
    nothing of it lands.

    Raises ConcurrentCommit: another audit has written since.
    """
    seen_at = _EPOCH + dt.timedelta(microseconds=seen_us)
    times = {"first_seen_at": seen_at, "last_seen_at": seen_at, "times_seen": 1}
    rules = rule_catalogue().by_id
    rows = [{**times, **row, "cluster_id": cluster_id, "severity": rules[row["rule"]].severity.value} for row in found]
    before = create_for(tables, "findings", cluster_id)
    check_expected(before, {audit: done})
    known = [] if done is None else before.rows({"run_id": audit_run_id(audit, done)}, columns=_SAME)
    if done is None or {_same(row) for row in rows} != {_same(row) for row in known}:
        number = (done or 0) + 1
        table = pa.Table.from_pylist([{**row, "run_id": audit_run_id(audit, number)} for row in rows], schema=FINDINGS)
        write = tables.upsert if rows else tables.append  # a merge of nothing is no commit
        write("findings", table, transactions={audit: number}, expected={audit: done})
    return dict(Counter(row["rule"] for row in rows))


def _same(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SAME)
