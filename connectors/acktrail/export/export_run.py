"""One run of the exporter: the state topic is read while the brokers are asked about groups and offsets."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConcurrentCommit, LogChanged, NotAllAnswered, OutcomeUnknown, RetryableError
from acktrail.export.export_summary import ExportSummary, added, summed

if TYPE_CHECKING:
    from acktrail.connect.contract import Source, SourceBatch
    from acktrail.connect.worker import FlushPolicy, Progress, WorkerSummary

__all__ = ["Deadline", "ExportRun"]

_SWITCH_S: Final = 0.000_2
_RESUMPTIONS: Final = 20
"""How often in a row the reading starts again from the last commit before the error is the caller's."""
_LONGEST_PAUSE_S: Final = 1.0
_LOOK_UP_S: Final = 0.1
_REASONS_KEPT: Final = 20
_ANSWER_LATER: Final = "the state records are exported; run again when the brokers answer"


class Deadline(Event):
    """Is set when one of `events` is, or `seconds` after it was made (None: never)."""

    def __init__(self, *events: Event, seconds: float | None = None) -> None:
        super().__init__()
        self._events = events
        self._at = None if seconds is None else time.monotonic() + seconds

    def is_set(self) -> bool:
        is_late = self._at is not None and time.monotonic() >= self._at
        return is_late or any(event.is_set() for event in self._events)


class ExportRun:
    """One run against one cluster into one set of tables. Use ``open`` first; one thread.

    Reading starts again from the last commit when another writer committed first, when a partition's leader changed,
    and when nobody can say whether a commit landed: positions are read from the tables.
    """

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
        self._unanswered: list[str] = []
        self._is_stopped = False
        self.is_topic_absent = False
        """No share consumer ever came to this cluster: there is no state topic."""
        self._cluster_id = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Connect, and see that the tables are this cluster's before anything is read."""
        from acktrail.broker.admin import ShareGroupAdmin

        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            self._renew_sink()
            self._sink.start()
            yield

    def observe(self, run_id: str | None = None, *, follows: bool = False) -> None:
        """Ask the brokers, read the state topic to the end it has, ask the brokers again. Rows of the answers have
        `run_id` (None: the run's own).

        While the brokers are asked, the state topic is read as well, so that a coordinator that keeps silent does not
        hold up the export: to its present end, or with `follows` for as long as they are asked.
        """
        if self._sample_beside(run_id, "before", follows=follows):
            self.read_state(bounded=True)
            self._sample_beside(run_id, "after", follows=follows)

    def sample(self, *, with_state: bool) -> None:
        """Ask the brokers for groups, start offsets, lag and log offsets, now; `with_state`: while they are asked, read
        the state topic to its present end."""
        if with_state:
            self._sample_beside(None, "before", follows=False)
        else:
            self._await_and_store(_Sampling(self._kafka, self._tables, self._run_id, "before"))

    def _sample_beside(self, run_id: str | None, phase: str, *, follows: bool) -> bool:
        """Whether the answers are there; False: the run was stopped."""
        sampling = _Sampling(self._kafka, self._tables, run_id or self._run_id, phase)
        if follows:
            self.read_state(bounded=False, stop=Deadline(self._stop, sampling.done))
        elif phase == "before":
            self.read_state(bounded=True)
        return self._await_and_store(sampling)

    def _await_and_store(self, sampling: _Sampling) -> bool:
        while not (sampling.done.wait(_LOOK_UP_S) or self._stop.is_set()):
            pass
        if not sampling.done.is_set():
            self._is_stopped = True
            return False
        self._store(sampling)
        return True

    def read_state(self, *, bounded: bool, stop: Event | None = None) -> None:
        """Read the state topic from where the tables end: to its present end, or until `stop` is set."""
        from acktrail.broker.state.state_source import StateSource, StateSourceStatus

        def read() -> None:
            source = StateSource(self._kafka, run_id=self._run_id, bounded=bounded, stored=self._sink)
            self._move(source, stop or self._stop)
            self.is_topic_absent = source.status is StateSourceStatus.STATE_TOPIC_ABSENT

        self._resuming(read)

    def summary(self) -> ExportSummary:
        """What was done so far."""
        status = "state_topic_absent" if self.is_topic_absent else "complete"
        return summed(
            self._done,
            run_id=self._run_id,
            cluster_id=self._cluster_id,
            status="stopped" if self._is_stopped else status,
            unanswered=self._unanswered,
        )

    def checked_summary(self) -> ExportSummary:
        """``summary``.

        Raises:
            NotAllAnswered: brokers did not answer; it has the summary.
        """
        summary = self.summary()
        if summary.unanswered:
            raise NotAllAnswered("; ".join(summary.unanswered), summary=summary, hint=_ANSWER_LATER)
        return summary

    def _resuming(self, work: Callable[[], None]) -> None:
        """Do `work`, again from the last commit where that is safe and may help."""
        for left in range(_RESUMPTIONS, -1, -1):
            try:
                work()
            except (ConcurrentCommit, LogChanged, OutcomeUnknown):
                self._renew_sink()
                if not left or self._stop.is_set():
                    raise
                self._stop.wait(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311  # writers that collided part ways
            else:
                return

    def _renew_sink(self) -> None:
        from acktrail.tables.delta.store import Tables
        from acktrail.tables.exported.delta_sink import DeltaSink

        self._sink = DeltaSink(Tables(self._tables), cluster_id=self._cluster_id, run_id=self._run_id)

    def _store(self, sampling: _Sampling) -> None:
        """Commit what the brokers answered, and remember what they did not."""
        from acktrail.broker.groups.offsets_source import unanswered_groups

        if isinstance(sampling.error, RetryableError):
            self._unanswered.append(f"not observed {sampling.phase} the export: {sampling.error.message}")
        elif sampling.error is not None:
            raise sampling.error
        if sampling.batch is None:
            return
        silent = unanswered_groups(sampling.batch)
        if silent:
            named = ", ".join(map(repr, silent[:3])) + (", ..." if silent[3:] else "")
            self._unanswered.append(f"no coordinator answered for {len(silent)} group(s): {named}")
        self._unanswered = list(dict.fromkeys(self._unanswered))[-_REASONS_KEPT:]
        batch = sampling.batch
        self._resuming(lambda: self._move(_Batches(batch), Event()))

    def _move(self, source: Source, stop: Event) -> None:
        from acktrail.connect.worker import Worker

        worker = Worker(source, self._sink, policy=self._policy, progress=self._progress)
        try:
            with _eager_threads(), _settled_objects():
                worker.run(stop)
        finally:
            source.close()
            self._done = [added(self._done[0], worker.landed) if self._done else worker.landed]
        if worker.landed.was_stopped and self._stop.is_set():
            self._is_stopped = True


class _Sampling:
    """Asks the brokers once, on a thread of its own. `done` is set when `batch` or `error` is there."""

    def __init__(self, kafka: KafkaConfig, tables: TablesConfig, run_id: str, phase: str) -> None:
        self._kafka, self._tables, self._run_id, self.phase = kafka, tables, run_id, phase
        self.batch: SourceBatch | None = None
        self.error: BaseException | None = None
        self.done = Event()
        Thread(target=self._run, name="acktrail-sample", daemon=True).start()

    def _run(self) -> None:
        try:
            self.batch = self._ask()
        except BaseException as error:  # noqa: BLE001  # raised again by whoever waits
            self.error = error
        finally:
            self.done.set()

    def _ask(self) -> SourceBatch | None:
        from acktrail.broker.groups.offsets_source import OffsetsSource
        from acktrail.tables.delta.store import Tables
        from acktrail.tables.known_names import known_names

        known = known_names(Tables(self._tables))
        source = OffsetsSource(
            self._kafka, run_id=self._run_id, phase=self.phase, groups=known.groups, topic_ids=known.topic_ids
        )
        try:
            (task,) = source.tasks()
            task.start(None)
            return task.poll(0)
        finally:
            source.close()


class _Batches:
    """One batch as a source with one task."""

    def __init__(self, batch: SourceBatch) -> None:
        self._waiting: list[SourceBatch] = [batch]
        self.task_id = batch.task

    def tasks(self) -> tuple[_Batches]:
        return (self,)

    def start(self, position: int | None) -> None:
        """There is nothing to go on from."""

    def poll(self, timeout_s: float) -> SourceBatch | None:  # noqa: ARG002  # the contract has it
        return self._waiting.pop() if self._waiting else None

    @property
    def is_finished(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        """Nothing to give back."""


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
