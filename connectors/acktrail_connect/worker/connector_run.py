"""One connector in a worker: its source, its sink and its tasks, in the state that a person wants. What is wanted is
kept as files of a folder or in memory."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from acktrail.atomic_files import write_whole
from acktrail.backoff import passing
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.text_parsing import parse_json
from acktrail_connect.contract import Config, WorkLease
from acktrail_connect.worker.connector_config import SINK_PREFIX, ConnectorPlan, ResolvedConfig
from acktrail_connect.worker.redaction import Redaction
from acktrail_connect.worker.task_thread import RunState, RunStatus, RunThread, TaskThread

_LONGEST: Final = 200
_SHOWN: Final = 100
_STANDBY_S: Final = 2.0
_TABLES: Final = f"{SINK_PREFIX}tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnector:
    """A configuration as it was given, references to secrets unresolved, and the state that a person wants: RUNNING,
    PAUSED (which keeps the tasks) or STOPPED (which has none: only then positions can be changed)."""

    config: Mapping[str, Any]
    target: RunState = RunState.RUNNING


class ConfigStore:
    """Connectors by name. `folder` None: they live as long as the process. A crash leaves the old or the new file of
    a connector; only its owner may read it. `faults`: what in the folder is no connector's file, and was ignored.
    Raises ConfigurationError when the folder cannot be read or written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._connectors: dict[str, StoredConnector] = {}
        self.faults: list[ConfigurationError] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                files = sorted(folder.glob("*.json"))
            except OSError as error:
                hint = "the worker keeps connectors there"
                raise ConfigurationError(f"{folder} cannot be used: {error.strerror}", hint=hint) from error
            for file in files:
                try:
                    name, connector = _read(file)
                except ConfigurationError as error:
                    self.faults.append(error)
                else:
                    self._connectors[name] = connector

    def all(self) -> dict[str, StoredConnector]:
        """A copy, by name."""
        return dict(self._connectors)

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep it, in place of another of this name."""
        if self._folder is not None:
            content = {"name": name, "config": dict(connector.config), "target": connector.target.value}
            write_whole(json.dumps(content, indent=2), self._file(name), mode=0o600)
        self._connectors[name] = connector

    def remove(self, name: str) -> None:
        """Forget it."""
        if self._folder is not None:
            self._file(name).unlink(missing_ok=True)
        del self._connectors[name]

    def kept_apart(self, resolved: ResolvedConfig) -> ResolvedConfig:
        """`resolved`, where keys of the sink that name the store, or a folder in or above it, are wrong: what the sink
        writes would lie among the connectors."""
        if self._folder is None:
            return resolved
        found = [key for key, text in resolved.values.items() if _is_written(key, text) and _meets(text, self._folder)]
        texts = "the worker keeps its connectors there (config.storage.dir); name a folder apart from it"
        wrong = {key: (f"{key}: {texts}",) for key in found}
        return replace(resolved, wrong={**wrong, **resolved.wrong})

    def _file(self, name: str) -> Path:
        assert self._folder is not None
        quoted = urllib.parse.quote(name, safe="").replace(".", "%2E")
        if len(quoted) > _LONGEST:  # a file's name has at most 255 bytes
            quoted = f"{quoted[:_SHOWN]}-{hashlib.sha256(name.encode()).hexdigest()}"
        return self._folder / f"{quoted}.json"


def _is_written(key: str, text: object) -> bool:
    """Whether a sink may write to the path `text`. Keys of plug-ins are judged by how a path begins."""
    if not key.startswith(SINK_PREFIX) or not isinstance(text, str) or not text:
        return False
    return key == _TABLES or (text != "/" and text.startswith(("/", "file:")))


def _meets(text: str, folder: Path) -> bool:
    """Whether `text` names `folder`, a folder in it or one above it, links followed."""
    try:
        parts = urllib.parse.urlsplit(text)
        if parts.scheme != "file" and "://" in text:
            return False
        named, store = (os.path.realpath(each) for each in (parts.path if parts.scheme == "file" else text, folder))
    except ValueError:  # no sink takes it
        return False
    return _is_within(Path(named), Path(store)) or _is_within(Path(store), Path(named))


def _is_within(inner: Path, outer: Path) -> bool:
    return any(_is_same(each, outer) for each in (inner, *inner.parents))


def _is_same(one: Path, other: Path) -> bool:
    """Also by another name, as of a mount."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _read(file: Path) -> tuple[str, StoredConnector]:
    try:
        if not file.is_file():  # a pipe would be waited for
            raise TypeError("it is no file")
        content = parse_json(file.read_text("utf-8-sig"))
        name, config = content["name"], content["config"]
        if not isinstance(name, str) or not isinstance(config, dict):
            raise TypeError("the name or the configuration is missing")
        return name, StoredConnector(config=config, target=RunState(content["target"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{file} is not the file of a connector: {type(error).__name__}",
            hint="remove it, or restore it from a backup",
        ) from error


class ConnectorRun(RunThread):
    """Keeps one connector in its target state, on a thread of its own. Any thread may call any method.

    Only the own thread waits for brokers, storages and tasks (``positions``: the caller's too); all others leave a wish
    and return at once, so that a state can always be asked for and changed.

    `lease` (None: this worker is alone) is renewed at least every two seconds; while another worker holds it, the
    connector stands by (UNASSIGNED), and when it is lost, the tasks end. `after` must have ended before this one
    begins. `redact` hides the secrets of the configuration in a text.
    """

    def __init__(
        self,
        plan: ConnectorPlan,
        *,
        target: RunState = RunState.RUNNING,
        lease: WorkLease | None = None,
        notice: Callable[[str, str, str], None] = lambda _name, _event, _text: None,
        after: ConnectorRun | None = None,
        redact: Redaction | None = None,
    ) -> None:
        self.plan, self.redact = plan, redact or Redaction()
        super().__init__(plan.name, plan.errors, partial(notice, plan.name), self.redact, "")
        self._lease, self._after = lease, after
        self._source_lock = Lock()  # held while the source starts or stops
        self._changed = Event()
        self._ending = Event()
        self._target = target
        self._tasks: list[TaskThread] = []
        self._is_source_started = self._is_sink_started = False
        self._restarts = False

    def aim(self, target: RunState) -> None:
        """Set the state that the connector should reach. Returns at once; its thread does the work."""
        with self._lock:
            self._target = target
            if target is not RunState.RUNNING:
                for task in self._tasks:
                    task.request_stop(target)
        self._changed.set()

    def request_end(self) -> None:
        """Want the end of everything; what one commit takes is committed first."""
        self._ending.set()
        with self._lock:
            for task in self._tasks:
                task.request_stop()
        self._changed.set()

    def restart(self, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks if asked; `only_failed`: those that failed. Returns at once: what is to
        be restarted is RESTARTING."""
        with self._lock:
            if self._status.state is RunState.FAILED or not only_failed:
                self._restarts = True
                self._status = RunStatus(state=RunState.RESTARTING)
            for task in self._tasks if include_tasks else ():
                if task.status.state is RunState.FAILED or not only_failed:
                    task.request_stop(RunState.RESTARTING)
        self._changed.set()

    def restart_task(self, number: int) -> None:
        """Restart one task; returns at once. Raises IndexError when there is none of that number."""
        with self._lock:
            self._tasks[number].request_stop(RunState.RESTARTING)
        self._changed.set()

    @property
    def target(self) -> RunState:
        return self._target

    @property
    def status(self) -> RunStatus:
        return self._status

    @property
    def is_new(self) -> bool:
        """Whether the connector has not begun to start yet."""
        return self._status == RunStatus(state=RunState.UNASSIGNED)

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

    def tasks(self) -> list[TaskThread]:
        """In their order; none when stopped or standing by."""
        with self._lock:
            return list(self._tasks)

    def positions(self) -> Mapping[SourcePartition, Position]:
        """What was committed, as the sink's storage has it. Waits for cluster and storage, and raises what reaching
        them raises."""
        with self._source_lock:
            self._start_source()
            source_partitions = self.plan.source.source_partitions()
        return self.plan.sink.positions(self.plan.name, source_partitions)

    def _live(self) -> None:
        if self._after is not None:
            self._after.join()
            self._after = None
        while not self._ending.is_set():
            self._changed.clear()
            pause_s = self._step()
            self._changed.wait(pause_s)
        self._end_tasks()
        self._close()

    def _step(self) -> float:
        """One step towards the target; gives the longest pause until the next, in seconds."""
        try:
            self._approach()
        except Exception as error:  # noqa: BLE001  # a connector must not take its worker along
            outage = passing(error)
            pause_s = None if outage is None else self._outage.begin(outage)
            if outage is not None and pause_s is not None:
                self._set(RunState.RUNNING, f"outage: {outage.message}")
                return pause_s
            self._fail("connector", error)
        return _STANDBY_S

    def _approach(self) -> None:
        target = self._target
        if self._restarts or (target is RunState.RUNNING and self._status.state is RunState.STOPPED):
            self._restarts = False
            self._set(RunState.RESTARTING)
            self._stop_source()
        has_failed = self._status.state is RunState.FAILED
        if target is RunState.RUNNING:
            if not has_failed and self._is_mine():
                self._run_tasks()
                self._outage.end()
                self._set(RunState.RUNNING)
            return
        self._end_tasks(target)
        self._release()
        if target is RunState.STOPPED or not has_failed:
            self._set(target)

    def _is_mine(self) -> bool:
        """Hold the lease, or stand by."""
        if self._lease is None or self._lease.acquire():
            return True
        if self._tasks:
            self._notice("lease_lost", f"another worker took over: {self._lease.holder}")
        self._end_tasks()
        self._set(RunState.UNASSIGNED, f"stands by: {self._lease.holder} runs it")
        return False

    def _run_tasks(self) -> None:
        """Start the source and the tasks, where they are not; replace those that were asked to end."""
        with self._source_lock:
            if not self._is_sink_started:
                self.plan.sink.start()
                self._is_sink_started = True
            self._start_source()
        if not self._tasks:
            configs = self.plan.source.task_configs(self.plan.tasks_max)
            tasks = [self._new_task(number, config) for number, config in enumerate(configs)]
            with self._lock:
                self._tasks = tasks
            for task in tasks:
                task.start()
        for number, task in enumerate(self._tasks):
            if task.is_asked_to_stop and task.status.state is not RunState.FAILED:
                self._renew(number, task)

    def _renew(self, number: int, before: TaskThread) -> None:
        before.join()
        task = self._new_task(number, before.config)
        with self._lock:
            if self._target is not RunState.RUNNING or self._ending.is_set():
                return
            self._tasks[number] = task
        task.start()

    def _new_task(self, number: int, config: Config) -> TaskThread:
        return TaskThread(self.plan, number, config, self._notice, self.redact)

    def _end_tasks(self, leaves: RunState = RunState.STOPPED) -> None:
        """End all tasks and wait for it; none are left but those that are PAUSED."""
        for task in self._tasks:
            task.request_stop(leaves)
        for task in self._tasks:
            task.join()
        if leaves is not RunState.PAUSED:
            with self._lock:
                self._tasks = []

    def _start_source(self) -> None:
        """The caller holds the source's lock."""
        if not self._is_source_started:
            self.plan.source.start()
            self._is_source_started = True

    def _stop_source(self) -> None:
        with self._source_lock:
            if self._is_source_started:
                self.plan.source.stop()
            self._is_source_started = False

    def _release(self) -> None:
        try:
            if self._lease is not None:
                self._lease.release()
        except AcktrailError as error:
            self._notice("lease_kept", f"the lease could not be given back: {error.message}")

    def _close(self) -> None:
        self._release()
        for part in (self.plan.source, self.plan.sink):
            try:
                part.stop()
            except Exception as error:  # noqa: BLE001  # the other part is closed all the same
                self._notice("connector_unclosed", f"could not be closed: {type(error).__name__}: {error}")
