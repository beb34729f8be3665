"""What an audit of a branch found, as rows of ``findings`` beside those of reconciliations.

The audit opens and closes the findings of the branch's rules: one is open as long as the newest audit has it, and no
other run touches it (``acktrail.tables.open_runs``).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import FINDINGS
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import audit_run_id

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SAME: Final = ("rule", "subject", "severity", "detail", "last_seen_at")
"""The columns in which an audit that found nothing else agrees with the one before."""


def write_branch_findings(
    tables: Tables, audit: str, cluster_id: str, found: Iterable[Mapping[str, Any]], seen_us: int
) -> dict[str, int]:
    """Open what the `audit` of a branch `found`, close what it did not, in one commit; gives how many of each rule are
    open. `found`: columns of ``FINDINGS`` that the audit knows, with rule and subject. `seen_us`: the newest look that
    it read, microseconds; an audit that finds the same in the same looks changes nothing.

    Of two audits that write at once the second one fails, and nothing of it lands; and none undoes what an audit of
    later looks has written.

    Raises ConcurrentCommit: another audit is writing, or has written what later looks show.
    """
    seen, seen_at = f"{audit}/looks", _EPOCH + dt.timedelta(microseconds=seen_us)
    times = {"first_seen_at": seen_at, "last_seen_at": seen_at, "times_seen": 1}
    rows = [
        {**times, **row, "cluster_id": cluster_id, "severity": RULE_BY_ID[row["rule"]].severity.value} for row in found
    ]
    before = create_for(tables, "findings", cluster_id)
    done, seen_before = (before.transaction_version(app_id) for app_id in (audit, seen))
    if seen_before is not None and seen_before > seen_us:
        raise ConcurrentCommit(
            f"another audit has written the findings of later looks to the tables at {tables.root}",
            hint="run it again",
            data={"table": "findings", "newest_us": seen_us, "found_us": seen_before},
        )
    known = [] if done is None else before.rows({"run_id": audit_run_id(audit, done)}, columns=_SAME)
    if seen_before != seen_us or {_same(row) for row in rows} != {_same(row) for row in known}:
        number = (done or 0) + 1
        table = pa.Table.from_pylist([{**row, "run_id": audit_run_id(audit, number)} for row in rows], schema=FINDINGS)
        write = tables.upsert if rows else tables.append  # a merge of nothing is no commit
        write("findings", table, transactions={audit: number, seen: seen_us}, expected={audit: done})
    return dict(Counter(row["rule"] for row in rows))


def _same(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SAME)
