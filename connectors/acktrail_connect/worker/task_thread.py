"""One task on a thread of its own: runs, survives outages, restarts, fails. Source and sink are made again for every
attempt: only the storage knows what landed before. Rows may pass through transforms; what these refuse becomes dead
letters, where that is tolerated."""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Event, Lock, Thread
from typing import Final

import pyarrow as pa

from acktrail.backoff import Notice, Outage, passing
from acktrail.errors import AcktrailError, InputError, LogChanged
from acktrail.times import new_run_id
from acktrail_connect.contract import Config, Gauge, SinkTaskContext, SourceTask, Transform
from acktrail_connect.source_batches import SourceBatch, all_dead, dead_letters
from acktrail_connect.task_execution import Change, Progress, TaskExecution, TaskSummary
from acktrail_connect.worker.connector_config import ConnectorPlan, ErrorPolicy

_FORGET_S: Final = 600.0
_GAPS_KEPT: Final = 1_000
_LASTING_S: Final = 5.0


class RunState(StrEnum):
    """What a connector or a task does. UNASSIGNED: it waits for its first start, or another worker runs it."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A state, and why: `trace` is one line and its hint for an error that was raised on purpose, else a traceback. A
    running task has a trace while an outage lasts, and while it may not see everything (``SourceTask.limits``)."""

    state: RunState
    trace: str = ""


class RunThread(ABC):
    """A connector or a task on a thread of its own: its state, and the outages that it survives. Any thread may ask for
    its status."""

    def __init__(self, name: str, errors: ErrorPolicy, notice: Notice, redact: Callable[[str], str], who: str) -> None:
        """Each text of a notice begins with `who`; `redact` hides secrets in notices and traces."""
        self._redact = redact
        self._notice: Notice = lambda event, text: notice(event, redact(who + text))
        self._outage = Outage(self._notice, timeout_s=errors.timeout_s, longest_pause_s=errors.longest_pause_s)
        self._lock = Lock()  # of what others see: never held during a call that may wait
        self._status = RunStatus(state=RunState.UNASSIGNED)
        self._thread = Thread(target=self._live, name=f"acktrail-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, where it has begun; whether it came."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _live(self) -> None:
        """All that the thread does."""

    def _set(self, state: RunState, trace: str = "") -> None:
        with self._lock:
            self._status = RunStatus(state=state, trace=self._redact(trace))

    def _fail(self, what: str, error: Exception) -> None:
        told = error.with_hint if isinstance(error, AcktrailError) else "".join(traceback.format_exception(error))
        self._set(RunState.FAILED, told)
        self._notice(f"{what}_failed", f"failed: {error}")


class TaskThread(RunThread):
    """Runs the part `config` of a connector's work until it is finished, stopped or failed."""

    def __init__(
        self, plan: ConnectorPlan, number: int, config: Config, notice: Notice, redact: Callable[[str], str] = str
    ) -> None:
        super().__init__(f"{plan.name}-{number}", plan.errors, notice, redact, f"task {number} ")
        self._plan, self.config = plan, config
        self._stop = Event()
        self._leaves = RunState.STOPPED
        self._failures: deque[float] = deque()
        self._run: TaskExecution | None = None
        self._source: SourceTask | None = None
        self._before = TaskSummary()
        self._began_at = 0.0
        self.is_finished = False
        """A bounded task gave everything. One that did not begin yet gave nothing."""
        self.errors: Counter[str] = Counter()
        """Errors that ended an attempt, by the name of their class."""
        self.last_success_at: float | None = None
        """When rows were last read or a commit went well, in seconds since the epoch."""

    def start(self) -> None:
        self._set(RunState.RUNNING)
        super().start()

    def request_stop(self, leaves: RunState = RunState.STOPPED) -> None:
        """Ask for an end; what one commit takes is committed first. `leaves` is the state afterwards; RESTARTING is it
        at once. A failed task stays failed unless it is restarted."""
        with self._lock:
            self._leaves = leaves
            is_over = not self._thread.is_alive() and self._status.state is not RunState.FAILED
            if leaves is RunState.RESTARTING or is_over:
                self._status = RunStatus(state=leaves)
        self._stop.set()

    @property
    def is_asked_to_stop(self) -> bool:
        """It ends, or did because it was asked to."""
        return self._stop.is_set()

    @property
    def status(self) -> RunStatus:
        with self._lock:
            status = self._status
        reason = self._outage.reason
        if status.state is not RunState.RUNNING:
            return status
        source = self._source
        told = f"outage: {reason}" if reason else "" if source is None else source.limits
        return replace(status, trace=self._redact(told)) if told else status

    @property
    def summary(self) -> TaskSummary:
        """What all attempts committed so far; it never goes back."""
        with self._lock:
            run, before = self._run, self._before
        return before if run is None else before.followed_by(run.summary)

    @property
    def is_in_outage(self) -> bool:
        """It waits for broker or storage."""
        return bool(self._outage.reason)

    def gauges(self) -> Sequence[Gauge]:
        """What the source shows in the metrics."""
        source = self._source
        return () if source is None else source.gauges()

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                self._attempt()
            except Exception as error:  # noqa: BLE001  # a task must not take its worker along
                pause_s = self._pause_after(error)
                if pause_s is None:
                    self._fail("task", error)
                    return
                self._stop.wait(pause_s)
            else:
                self.is_finished = not self.summary.was_stopped
                break
        with self._lock:
            self._status = RunStatus(state=self._leaves)

    def _pause_after(self, error: Exception) -> float | None:
        """Seconds until the next attempt; None: a person has to look."""
        self.errors[type(error).__name__] += 1
        if isinstance(error, LogChanged):  # the log is compared with the stored records at once
            return 0.0
        outage = passing(error)
        if outage is not None:
            return self._outage.begin(outage)
        if isinstance(error, AcktrailError) or not self._may_restart():
            return None
        self._notice("task_restarted", f"restarts after {type(error).__name__}: {error}")
        return min(2.0 ** (len(self._failures) - 2), self._plan.errors.longest_pause_s)

    def _attempt(self) -> None:
        plan, run_id, self._began_at = self._plan, new_run_id(), time.monotonic()
        tolerates = plan.errors.tolerates_refusals
        source = self._source = plan.source.task(self.config)
        context = SinkTaskContext(
            connector=plan.name,
            run_id=run_id,
            cluster_id=plan.source.cluster_id,
            reads_logs=plan.source.reads_logs,
            dead_letter_table=plan.errors.dead_letter_table if tolerates else None,
        )
        sink = plan.sink.task(context)
        run = self._run = TaskExecution(
            source,
            sink,
            run_id=run_id,
            policy=plan.flush,
            committed=lambda wanted: plan.sink.positions(plan.name, wanted),
            progress=self._progressed,
            changed=transformed(plan.transforms(), plan.errors),
            refused=self._dead if tolerates else None,
        )
        try:
            run.run(self._stop)
        finally:
            summary = self._before.followed_by(run.summary)
            with self._lock:  # at once, or a scrape counts the attempt twice or not at all
                self._before, self._run = replace(summary, gaps=summary.gaps[-_GAPS_KEPT:]), None
            sink.stop()

    def _dead(self, batch: SourceBatch, error: InputError) -> SourceBatch:
        return all_dead(batch, error.message, self._plan.errors.dead_letter_table)

    def _progressed(self, progress: Progress) -> None:
        # What was read can still meet a storage that takes nothing; where nothing comes, time shows that all is well.
        has_lasted = time.monotonic() - self._began_at > _LASTING_S
        if not progress.pending_rows and (progress.records_committed or has_lasted):
            self._outage.end()
        self.last_success_at = time.time()

    def _may_restart(self) -> bool:
        now = time.monotonic()
        while self._failures and now - self._failures[0] > _FORGET_S:
            self._failures.popleft()
        self._failures.append(now)
        return len(self._failures) <= self._plan.errors.restarts


def transformed(chain: Sequence[Transform], errors: ErrorPolicy) -> Change:
    """What `chain` makes of each batch: rows that it refuses are dead letters where that is tolerated, else its error
    is raised."""

    def applied(batch: SourceBatch, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        try:
            name, kept = table, rows
            for transform in chain:
                name, kept = transform.apply(name, kept)
            return name, kept
        except (AcktrailError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
            if not errors.tolerates_refusals:
                raise
            return errors.dead_letter_table, dead_letters(batch, table, rows, str(error))

    def change(batch: SourceBatch) -> SourceBatch:
        tables: dict[str, list[pa.Table]] = {}
        for table, rows in batch.rows.items():
            name, kept = applied(batch, table, rows)
            tables.setdefault(name, []).append(kept)
        return replace(batch, rows={name: pa.concat_tables(parts) for name, parts in tables.items()})

    return change if chain else lambda batch: batch
