"""What the commands and the DAGs both call: export, and the observation that a reconciliation needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import InputError
from acktrail.export.export_run import ExportRun
from acktrail.export.export_summary import ExportSummary, Gap
from acktrail.times import new_run_id

if TYPE_CHECKING:
    from acktrail.connect.worker import FlushPolicy, Progress

__all__ = ["CONNECTORS", "ExportSummary", "Gap", "check_connectors", "export", "observe"]

CONNECTORS: Final = ("offsets", "state")
"""What can be exported."""


def check_connectors(connectors: Sequence[str]) -> None:
    """Raises InputError for a connector that does not exist."""
    unknown = sorted(set(connectors) - set(CONNECTORS))
    if unknown:
        raise InputError(f"unknown connector {unknown[0]!r}", hint=f"there are {', '.join(CONNECTORS)}")


def export(
    kafka: KafkaConfig,
    tables: TablesConfig,
    *,
    run_id: str | None = None,
    connectors: Sequence[str] = CONNECTORS,
    stop: Event | None = None,
    policy: FlushPolicy | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ExportSummary:
    """Copy the cluster's share-group state and what it says of groups and offsets into the tables.

    Up to the end that the state topic has now. Nothing is changed in the cluster. Running it again goes on where the
    tables end. The state topic is read while the brokers are asked.

    Raises:
        NotAllAnswered: the state records are exported; what brokers did not answer is recorded as unknown.
        Unreachable, NotAuthorized, ForeignCluster, ConcurrentCommit, ConfigurationError: nothing half written.
        OutcomeUnknown: the storage is gone; run again.
    """
    check_connectors(connectors)
    run = ExportRun(kafka, tables, run_id or new_run_id(), stop or Event(), policy, progress)
    with run.open():
        if "offsets" in connectors:
            run.sample(with_state="state" in connectors)
        elif "state" in connectors:
            run.read_state(bounded=True)
    return run.checked_summary()


def observe(
    kafka: KafkaConfig,
    tables: TablesConfig,
    *,
    run_id: str | None = None,
    stop: Event | None = None,
    policy: FlushPolicy | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ExportSummary:
    """One observation: ask the brokers, read the state topic to the end it has, ask the brokers again.

    What is replayed from the tables up to here must lie between the two answers. Raises as ``export``.
    """
    run = ExportRun(kafka, tables, run_id or new_run_id(), stop or Event(), policy, progress)
    with run.open():
        run.observe()
    return run.checked_summary()
