"""What the commands and the DAGs both call: export, and the observation that a reconciliation needs."""

from __future__ import annotations

import datetime as dt
import gc
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import InputError

if TYPE_CHECKING:
    from acktrail.connect.contract import Source
    from acktrail.connect.worker import FlushPolicy, Progress, WorkerSummary

__all__ = ["CONNECTORS", "ExportSummary", "Gap", "export", "new_run_id", "observe"]

CONNECTORS: Final = ("offsets", "state")
"""What can be exported, in the order in which it is."""

_SWITCH_S: Final = 0.000_2


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets of one state partition, both inclusive, that are in no row, and why (``connect.contract``)."""

    state_partition: int
    first_offset: int
    last_offset: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """What one run wrote. records_read = records_decoded + records_quarantined.

    `status` is ``complete``, ``stopped`` (told to end before it was finished) or ``state_topic_absent`` (no share
    consumer ever came to this cluster).
    """

    run_id: str
    cluster_id: str
    status: str
    records_read: int = 0
    records_decoded: int = 0
    records_quarantined: int = 0
    commits: int = 0
    gaps: tuple[Gap, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Rows committed, by table."""


def new_run_id() -> str:
    """A name for a run that nobody else has: UTC time and a random part."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


def export(
    kafka: KafkaConfig,
    tables: TablesConfig,
    *,
    run_id: str | None = None,
    connectors: Sequence[str] = CONNECTORS,
    bounded: bool = True,
    stop: Event | None = None,
    policy: FlushPolicy | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ExportSummary:
    """Copy the cluster's share-group state and what it says of groups and offsets into the tables.

    Bounded: up to the end that the state topic had at the start; else until `stop` is set. Nothing is changed in the
    cluster. Running it again goes on where the tables end.

    Raises:
        Unreachable, NotAuthorized, ForeignCluster, ConcurrentCommit, ConfigurationError: nothing half written.
    """
    unknown = sorted(set(connectors) - set(CONNECTORS))
    if unknown:
        raise InputError(f"unknown connector {unknown[0]!r}", hint=f"there are {', '.join(CONNECTORS)}")
    run = _Run(kafka, tables, run_id or new_run_id(), stop or Event(), policy, progress)
    with run.open():
        if "offsets" in connectors:
            run.sample("before")
        if "state" in connectors:
            run.read_state(bounded=bounded)
    return run.summary()


def observe(
    kafka: KafkaConfig,
    tables: TablesConfig,
    *,
    run_id: str | None = None,
    stop: Event | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ExportSummary:
    """One observation: ask the brokers, read the state topic to the end it has, ask the brokers again.

    What is replayed from the tables up to here must lie between the two answers. Raises as ``export``.
    """
    run = _Run(kafka, tables, run_id or new_run_id(), stop or Event(), None, progress)
    with run.open():
        run.sample("before")
        run.read_state(bounded=True)
        run.sample("after")
    return run.summary()


class _Run:
    """One run against one cluster into one set of tables."""

    def __init__(
        self,
        kafka: KafkaConfig,
        tables: TablesConfig,
        run_id: str,
        stop: Event,
        policy: FlushPolicy | None,
        progress: Callable[[Progress], None],
    ) -> None:
        self._kafka, self._tables = kafka, tables
        self._run_id, self._stop = run_id, stop
        self._policy, self._progress = policy, progress
        self._done: list[WorkerSummary] = []
        self._status = "complete"
        self._cluster_id = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Connect, and see that the tables are this cluster's before anything is read."""
        from acktrail.broker.admin import ShareGroupAdmin
        from acktrail.tables.sink import DeltaSink
        from acktrail.tables.store import Tables

        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            self._admin = admin
            self._sink = DeltaSink(Tables(self._tables), cluster_id=self._cluster_id, run_id=self._run_id)
            self._sink.start()
            yield

    def sample(self, phase: str) -> None:
        """Ask the brokers for groups, start offsets, lag and log offsets, now."""
        from acktrail.broker.offsets_source import OffsetsSource
        from acktrail.tables.known_names import known_names
        from acktrail.tables.store import Tables

        known = known_names(Tables(self._tables))
        self._move(
            OffsetsSource(self._kafka, run_id=self._run_id, phase=phase, groups=known.groups, topic_ids=known.topic_ids)
        )

    def read_state(self, *, bounded: bool) -> None:
        """Read the state topic from where the tables end."""
        from acktrail.broker.state_source import StateSource, StateSourceStatus

        source = StateSource(self._kafka, run_id=self._run_id, bounded=bounded, stored=self._sink)
        self._move(source)
        if source.status is StateSourceStatus.STATE_TOPIC_ABSENT:
            self._status = source.status.value

    def summary(self) -> ExportSummary:
        """What was done so far."""
        stopped = any(part.was_stopped for part in self._done)
        rows: dict[str, int] = {}
        for part in self._done:
            for name, count in part.rows.items():
                rows[name] = rows.get(name, 0) + count
        return ExportSummary(
            run_id=self._run_id,
            cluster_id=self._cluster_id,
            status="stopped" if stopped else self._status,
            records_read=sum(part.records_read for part in self._done),
            records_decoded=sum(part.records_decoded for part in self._done),
            records_quarantined=sum(part.records_quarantined for part in self._done),
            commits=sum(part.commits for part in self._done),
            gaps=tuple(
                Gap(
                    state_partition=span.partition,
                    first_offset=span.gap_first,
                    last_offset=span.gap_last,
                    reason=span.gap_reason,
                )
                for part in self._done
                for span in part.gaps
                if span.gap_first is not None and span.gap_last is not None
            ),
            rows=rows,
        )

    def _move(self, source: Source) -> None:
        from acktrail.connect.worker import Worker

        worker = Worker(source, self._sink, policy=self._policy, progress=self._progress)
        try:
            with _eager_threads(), _settled_objects():
                self._done.append(worker.run(self._stop))
        finally:
            source.close()


@contextmanager
def _eager_threads() -> Iterator[None]:
    """Reading, decoding and committing are threads that want the interpreter for microseconds at a time: to wait
    Python's usual 5 ms for it costs a seventh of an export's time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@contextmanager
def _settled_objects() -> Iterator[None]:
    """What was imported is not looked through for garbage: messages by the million would have that done every 100,000,
    a tenth of an export's time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
