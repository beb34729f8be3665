"""One connector in a worker: its source, its sink and its tasks, in the state that a person wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event, RLock, Thread
from typing import Final, Protocol

from acktrail.connect.contract import Config, SinkTask, SinkTaskContext, SourceTask
from acktrail.connect.runtime.connector_config import ConnectorPlan
from acktrail.connect.runtime.outage import Notice, Outage
from acktrail.connect.runtime.states import RunState, RunStatus, TargetState
from acktrail.connect.runtime.task_thread import TaskParts, TaskThread
from acktrail.connect.runtime.transformed_source import TransformedSource
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import AcktrailError, OutcomeUnknown, RetryableError
from acktrail.times import new_run_id

_STANDBY_S: Final = 2.0


class WorkLease(Protocol):
    """Keeps a second worker standing by. It only saves work: commits expect positions, so two workers never double."""

    def acquire(self) -> bool:
        """Take or renew it; False: another worker has it. Raises RetryableError when the storage cannot be asked."""

    def release(self) -> None:
        """Give it back, if it is held."""

    @property
    def holder(self) -> str:
        """Who had it, when it was last looked at."""


class NoLease:
    """A worker that is alone."""

    holder = ""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """There is nothing to give back."""


class ConnectorRun:
    """Keeps one connector in its target state, on a thread of its own. Any thread may call any method.

    `lease` is renewed at least every `renew_s` seconds; while another worker holds it, the connector stands by
    (UNASSIGNED), and when it is lost, the tasks end.
    """

    def __init__(
        self,
        plan: ConnectorPlan,
        *,
        target: TargetState = TargetState.STARTED,
        lease: WorkLease | None = None,
        renew_s: float = _STANDBY_S,
        notice: Callable[[str, str, str], None] = lambda _name, _event, _text: None,
    ) -> None:
        self.plan = plan
        self._notice: Notice = lambda event, text: notice(plan.name, event, text)
        self._lease = lease or NoLease()
        self._renew_s = renew_s
        self._lock = RLock()
        self._changed = Event()
        self._ending = Event()
        self._target = target
        self._status = RunStatus(state=RunState.UNASSIGNED)
        self._tasks: list[TaskThread] = []
        self._configs: list[Config] = []
        self._is_source_started = False
        self._failed = False
        self._outage = Outage(plan.errors, self._notice)
        self._thread = Thread(target=self._live, name=f"acktrail-{plan.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def aim(self, target: TargetState) -> None:
        """Want another state; returns at once."""
        with self._lock:
            self._target = target
            if target is not TargetState.STARTED:
                for task in self._tasks:
                    task.request_stop()
        self._changed.set()

    def end(self) -> None:
        """Stop everything and wait for it: what one commit takes is committed first."""
        self._ending.set()
        self.aim(self._target)
        with self._lock:
            for task in self._tasks:
                task.request_stop()
        if self._thread.is_alive():
            self._thread.join()

    def restart(self, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks if asked; `only_failed`: those that failed."""
        with self._lock:
            if self._status.state is RunState.FAILED or not only_failed:
                self._failed = False
                self._is_source_started = False
            if include_tasks or not self._tasks:
                for number, task in enumerate(self._tasks):
                    if task.status.state is RunState.FAILED or not only_failed:
                        self._renew(number)
        self._changed.set()

    def restart_task(self, number: int) -> None:
        """Restart one task. Raises IndexError when there is none of that number."""
        with self._lock:
            self._renew(number)

    @property
    def target(self) -> TargetState:
        return self._target

    @property
    def status(self) -> RunStatus:
        return self._status

    @property
    def is_finished(self) -> bool:
        """Every task of a bounded connector gave everything."""
        with self._lock:
            return bool(self._tasks) and all(task.is_finished for task in self._tasks)

    @property
    def is_failed(self) -> bool:
        """The connector or one of its tasks failed."""
        with self._lock:
            states = [self._status.state, *(task.status.state for task in self._tasks)]
        return RunState.FAILED in states

    def tasks(self) -> list[tuple[Config, TaskThread]]:
        """The tasks and their parts of the work, in their order; none when stopped or standing by."""
        with self._lock:
            return list(zip(self._configs, self._tasks, strict=True))

    def positions(self) -> Mapping[SourcePartition, Position]:
        """What was committed, as the sink's storage has it. Raises what reaching cluster or storage raises."""
        source = self.plan.source
        with self._lock:
            if not self._is_source_started:
                source.start()
        return self.plan.sink.positions(self.plan.name, source.source_partitions())

    def _live(self) -> None:
        while not self._ending.is_set():
            self._changed.clear()
            try:
                self._approach()
            except (RetryableError, OutcomeUnknown) as error:
                pause_s = self._outage.begin(error)
                if pause_s is None:
                    self._fail(error)
                else:
                    self._set(RunState.RUNNING, f"outage: {error.message}")
                    self._changed.wait(pause_s)
                    continue
            except AcktrailError as error:
                self._fail(error)
            self._changed.wait(self._renew_s)
        self._end_tasks()
        self._close()

    def _approach(self) -> None:
        """One step towards the target."""
        target = self._target
        if target is not TargetState.STARTED:
            self._end_tasks(forget=target is TargetState.STOPPED)
            self._release()
            self._set(RunState(target.value))
        elif not self._failed and self._is_mine():
            self._run_tasks()
            self._outage.end()
            self._set(RunState.RUNNING)

    def _is_mine(self) -> bool:
        """Hold the lease, or stand by."""
        if self._lease.acquire():
            return True
        if self._tasks:
            self._notice("lease_lost", f"another worker took over: {self._lease.holder}")
        self._end_tasks(forget=True)
        self._set(RunState.UNASSIGNED, f"stands by: {self._lease.holder} runs it")
        return False

    def _run_tasks(self) -> None:
        """Start the source and the tasks, where they are not."""
        with self._lock:
            if not self._is_source_started:
                self.plan.sink.start()
                self.plan.source.start()
                self._is_source_started = True
            if not self._tasks:
                self._configs = list(self.plan.source.task_configs(self.plan.tasks_max))
                self._tasks = [self._new_task(number) for number in range(len(self._configs))]
                for task in self._tasks:
                    task.start()
            elif self._status.state is RunState.PAUSED:
                for number in range(len(self._tasks)):
                    self._renew(number)

    def _new_task(self, number: int) -> TaskThread:
        plan, config = self.plan, self._configs[number]

        def make(run_id: str) -> tuple[SourceTask, SinkTask]:
            source: SourceTask = plan.source.task(config)
            chain = plan.transforms()
            if chain or plan.errors.tolerates_refusals:
                source = TransformedSource(source, chain, plan.errors)
            context = SinkTaskContext(
                connector=plan.name,
                run_id=run_id,
                cluster_id=plan.source.cluster_id,
                reads_logs=plan.source.reads_logs,
                dead_letter_table=plan.errors.dead_letter_table if plan.errors.tolerates_refusals else None,
            )
            return source, plan.sink.task(context)

        name = f"{plan.name}-{number}"
        parts = TaskParts(
            name=name,
            make=make,
            flush=plan.flush,
            errors=plan.errors,
            new_run_id=new_run_id,
            committed=lambda wanted: plan.sink.positions(plan.name, wanted),
        )
        return TaskThread(parts, lambda event, text: self._notice(event, f"task {number} {text}"))

    def _renew(self, number: int) -> None:
        """Replace a task by a new one."""
        before = self._tasks[number]
        before.request_stop()
        before.join()
        self._tasks[number] = self._new_task(number)
        if self._target is TargetState.STARTED:
            self._tasks[number].start()

    def _end_tasks(self, *, forget: bool = False) -> None:
        with self._lock:
            for task in self._tasks:
                task.request_stop()
            for task in self._tasks:
                task.join()
            if forget:
                self._tasks, self._configs = [], []

    def _release(self) -> None:
        try:
            self._lease.release()
        except AcktrailError as error:
            self._notice("lease_kept", f"the lease could not be given back: {error.message}")

    def _close(self) -> None:
        self._release()
        self.plan.source.stop()
        self.plan.sink.stop()

    def _fail(self, error: AcktrailError) -> None:
        self._failed = True
        self._set(RunState.FAILED, error.message + (f"; {error.hint}" if error.hint else ""))
        self._notice("connector_failed", f"failed: {error.message}")

    def _set(self, state: RunState, trace: str = "") -> None:
        self._status = RunStatus(state=state, trace=trace)
