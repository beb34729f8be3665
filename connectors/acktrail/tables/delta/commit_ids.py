"""Names under which commits are found again (Delta application ids)."""

from __future__ import annotations


def reconciliation_commit(cluster_id: str | None, run_id: str, piece: str) -> str:
    """The commit that brought a piece of a reconciliation; pieces of rows are numbered from 0, which is
    always there."""
    return f"acktrail.reconcile/{cluster_id}/{run_id}/{piece}"
