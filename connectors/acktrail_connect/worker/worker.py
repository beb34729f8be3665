"""The worker: a set of connectors that a person creates, looks at and changes; what the REST interface calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any, Final
from weakref import WeakValueDictionary

from acktrail.errors import AcktrailError, InputError, UnknownName
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import ConfigKey, ConfigValue, Texts
from acktrail_connect.contract import LeaseTerms, WorkLease
from acktrail_connect.worker.connector_config import ConnectorPlan, ResolvedConfig, shown_config
from acktrail_connect.worker.connector_run import ConfigStore, ConnectorRun, StoredConnector
from acktrail_connect.worker.kept_secrets import kept
from acktrail_connect.worker.operator_texts import OperatorTexts
from acktrail_connect.worker.plugins import PluginKind, version_of
from acktrail_connect.worker.redaction import Redaction
from acktrail_connect.worker.task_thread import RunState, RunStatus, TaskThread

_LOG: Final = logging.getLogger("acktrail.connect")
_LOOK_S: Final = 0.01
_STOP_S: Final = 60.0
_LEAVE_S: Final = 10.0
_FIRST_STEP_S: Final = 1.0


class ConnectorConflict(InputError):
    """The connector is not in the state that this needs, or its name is taken."""


class NotStopped(InputError):
    """Offsets can only be changed while the connector is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            data={"connector": name},
        )


Fields = Mapping[str, Any]
"""An object of JSON: a source partition or a position as REST shows it."""


def _offset_of(position: Position) -> Mapping[str, Any]:
    """A position as REST shows it: a number is ``{"offset": number}``."""
    return {"offset": position} if isinstance(position, int) else position


def _position_of(offset: Mapping[str, Any]) -> Position:
    """The inverse of ``_offset_of``."""
    number = offset.get("offset")
    return number if set(offset) == {"offset"} and isinstance(number, int) else offset


class Worker:
    """Runs connectors. Every method may be called from any thread.

    `operators`: what is trusted. `lease`: take a lease for each connector, where its sink can give one; the name of
    this worker, and the seconds that a lease lasts. `own_cluster` asks for the Kafka cluster of a worker whose
    connectors do not know one.
    """

    def __init__(
        self,
        store: ConfigStore,
        *,
        operators: OperatorTexts | None = None,
        lease: tuple[str, float] | None = None,
        own_cluster: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._store, self._operators, self._lease = store, operators or OperatorTexts(), lease
        self._lock = RLock()  # of what this object has: never held during a call into a connector
        self._changes: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """A lock lives as long as somebody changes the connector or waits for it."""
        self._runs: dict[str, ConnectorRun | AcktrailError] = {}
        self._leaving: dict[str, ConnectorRun] = {}
        self._ask_cluster = own_cluster
        self._own_cluster: str | None = None

    def start(self) -> None:
        """Run what the store has, then those of the operator's files, which replace what the store has under their
        names. A stored connector whose configuration is wrong by now is FAILED; the others run. Raises
        InvalidConfiguration: one of a file is wrong."""
        kept_ones = self._store.all()
        for name, stored in kept_ones.items():
            if name not in self._operators.connectors:
                with self._changing(name):
                    self._run(name, stored)
        for name, texts in self._operators.connectors.items():
            target = kept_ones[name].target if name in kept_ones else RunState.RUNNING
            with self._changing(name):
                self._put(name, texts, target)

    def stop(self) -> None:
        """End all connectors, with a last commit each."""
        with self._lock:
            runs = [run for run in (*self._runs.values(), *self._leaving.values()) if isinstance(run, ConnectorRun)]
        for run in runs:
            run.request_end()
        for run in runs:
            run.join()

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._runs)

    def config(self, name: str) -> dict[str, Any]:
        """The configuration as it may be shown: secrets that are not references are hidden. Raises UnknownName."""
        return shown_config(self._stored(name).config)

    def version(self, name: str) -> str | None:
        """The version of the package that the connector's source comes from; None: not known. Raises UnknownName."""
        source = self._stored(name).config.get("connector.class")
        return version_of(PluginKind.SOURCE, str(source))

    def target(self, name: str) -> RunState:
        """What is wanted of the connector. Raises UnknownName."""
        return self._stored(name).target

    def status(self, name: str) -> RunStatus:
        """The connector's own state, at once. Raises UnknownName."""
        run = self._known(name)
        if isinstance(run, ConnectorRun):
            return run.status
        return RunStatus(state=RunState.FAILED, trace=run.message)

    def tasks(self, name: str) -> list[TaskThread]:
        """The tasks in their order, at once. Raises UnknownName."""
        run = self._known(name)
        return run.tasks() if isinstance(run, ConnectorRun) else []

    def runs(self) -> dict[str, ConnectorRun]:
        """The connectors that could be planned, by name."""
        with self._lock:
            return {name: run for name, run in self._runs.items() if isinstance(run, ConnectorRun)}

    def tables(self, name: str) -> list[str]:
        """The tables that the connector's tasks wrote since they were made. Raises UnknownName."""
        return sorted({self.redaction(name)(table) for task in self.tasks(name) for table in task.summary.rows})

    def cluster_id(self) -> str | None:
        """The one Kafka cluster that the connectors are of, else the worker's own; None: not known, or several."""
        found = {run.plan.source.cluster_id for run in self.runs().values()} - {None}
        if not found and self._own_cluster is None:
            self._own_cluster = self._ask_cluster()
        return (found.pop() if len(found) == 1 else None) if found else self._own_cluster

    def await_tasks(self, name: str) -> None:
        """Wait until the tasks of a connector that was just made are known, or the reason why there are none; at most a
        second. Raises UnknownName."""
        run, deadline = self._known(name), time.monotonic() + _FIRST_STEP_S
        while isinstance(run, ConnectorRun) and run.is_new and self._runs.get(name) is run:
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK_S)

    def create(self, name: str, config: Texts, target: RunState = RunState.RUNNING) -> None:
        """Add a connector and run it. Raises ConnectorConflict when there is one of this name, else as ``put``."""
        with self._changing(name):
            if name in self._runs:
                raise ConnectorConflict(f"Connector {name} already exists", hint="to change it, PUT its configuration")
            self._put(name, config, target, sent=config)

    def put(self, name: str, config: Texts) -> bool:
        """Create a connector or replace its configuration; whether it is new. Raises InvalidConfiguration with all that
        is wrong."""
        with self._changing(name):
            is_new = name not in self._runs
            target = RunState.RUNNING if is_new else self.target(name)
            self._put(name, config, target, sent=config)
        return is_new

    def patch(self, name: str, changes: Texts) -> None:
        """Change some keys; null removes one. Raises UnknownName, InvalidConfiguration."""
        with self._changing(name):
            before = self._stored(name).config
            config = {**before, **kept(changes, before)}
            own = {key: value for key, value in config.items() if value is not None}
            self._put(name, own, self.target(name), sent=changes)

    def delete(self, name: str) -> None:
        """Stop and forget a connector; what it wrote stays. Raises UnknownName."""
        with self._changing(name):
            run = self._known(name)
            with self._lock:
                self._store.remove(name)
                del self._runs[name]
                if isinstance(run, ConnectorRun):
                    run.request_end()
                    self._leaving[name] = run
        if isinstance(run, ConnectorRun) and run.join(_LEAVE_S):
            with self._lock:
                if self._leaving.get(name) is run:
                    del self._leaving[name]

    def aim(self, name: str, target: RunState) -> None:
        """Pause, resume or stop; returns at once. Raises UnknownName."""
        with self._changing(name):
            run = self._known(name)
            with self._lock:
                self._store.put(name, replace(self._stored(name), target=target))
            if isinstance(run, ConnectorRun):
                run.aim(target)

    def restart(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks if asked; `only_failed`: those that failed. Raises UnknownName, and
        InvalidConfiguration where that is why it failed and nothing changed."""
        with self._changing(name):
            run = self._known(name)
            if isinstance(run, ConnectorRun):
                run.restart(include_tasks=include_tasks, only_failed=only_failed)
            else:
                config = self._stored(name).config
                self._put(name, config, self.target(name), sent=config)

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task. Raises UnknownName."""
        run = self._known(name)
        if not isinstance(run, ConnectorRun) or not 0 <= number < len(run.tasks()):
            raise UnknownName("task", f"{name}-{number}")
        run.restart_task(number)

    def offsets(self, name: str) -> list[tuple[Fields, Fields]]:
        """The committed positions as REST shows them, in the order of the source's partitions. Raises UnknownName, and
        what reaching cluster or storage raises."""
        run = self._planned(name)
        return [(run.plan.source.fields_of(each), _offset_of(at)) for each, at in run.positions().items()]

    def alter_offsets(self, name: str, entries: Iterable[tuple[Fields, Fields | None]]) -> None:
        """Set the positions of a stopped connector, as REST shows them; None: remove one. Raises UnknownName,
        NotStopped, InputError (an entry is wrong, or rows would be lost or doubled: nothing was changed)."""
        run = self._stopped(name)
        run.positions()  # the source knows its partitions now
        source = run.plan.source
        positions: dict[SourcePartition, Position | None] = {}
        for fields, offset in entries:
            source_partition = source.source_partition(fields)
            position = None if offset is None else _position_of(offset)
            if position is not None:
                _check_position(run, source_partition, position)
            if source_partition in positions:
                raise InputError(f"{dict(fields)} is named twice")
            positions[source_partition] = position
        if not positions:
            raise InputError("no offsets are named", hint='{"offsets": [{"partition": {...}, "offset": {...}}]}')
        self._alter(name, run, positions)

    def reset_offsets(self, name: str) -> None:
        """Remove all positions of a stopped connector. Raises as ``alter_offsets``."""
        run = self._stopped(name)
        self._alter(name, run, dict.fromkeys(run.positions()))

    def validate(self, config: Texts) -> list[tuple[ConfigKey | None, ConfigValue]]:
        """Every key with its value as it may be shown, and what is wrong with it."""
        name = str(config.get("name", ""))
        before = self._before(name)
        own = kept(config, before)
        return self._resolved(own, self._operators.not_kept(own, config, before), looks=False).validated()

    def redact_all(self, text: str) -> str:
        """`text` without the secrets of any connector."""
        for run in self.runs().values():
            text = run.redact(text)
        return text

    def redaction(self, name: str) -> Redaction:
        """Hides the secrets of connector `name`, where there is one."""
        run = self._runs.get(name)
        return run.redact if isinstance(run, ConnectorRun) else Redaction()

    def _alter(self, name: str, run: ConnectorRun, positions: Mapping[SourcePartition, Position | None]) -> None:
        with self._changing(name):
            if self._runs.get(name) is not run or run.target is not RunState.STOPPED:
                raise NotStopped(name)
            if positions:
                run.plan.sink.alter_positions(name, positions)

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """One change of a connector at a time."""
        with self._lock:
            lock = self._changes.setdefault(name, RLock())
        with lock:
            yield

    def _before(self, name: str) -> Texts | None:
        stored = self._store.all().get(name)
        return None if stored is None else stored.config

    def _resolved(self, own: Texts, lacks: Mapping[str, tuple[str, ...]], *, looks: bool = True) -> ResolvedConfig:
        return self._store.kept_apart(self._operators.resolved(own, lacks, looks=looks))

    def _put(self, name: str, config: Texts, target: RunState, *, sent: Texts | None = None) -> None:
        """`sent`: what a caller of REST sent; None: it is of an operator's file, with all its secrets."""
        named = config.get("name", name)
        if named != name:
            raise InputError(f"Connector name configuration ({named}) doesn't match connector name {name}")
        before = self._before(name)
        stored = StoredConnector(config={**kept(config, before), "name": name}, target=target)
        with self._lock:
            old = self._runs.get(name, self._leaving.get(name))
        after = old if isinstance(old, ConnectorRun) else None
        lacks = {} if sent is None else self._operators.not_kept(stored.config, sent, before)
        made = self._new_run(stored, after, lacks)  # raises before anything is changed
        with self._lock:
            self._store.put(name, stored)
            self._leaving.pop(name, None)
            self._runs[name] = made
        if after is not None:
            after.request_end()
        made.start()

    def _run(self, name: str, stored: StoredConnector) -> None:
        try:
            run = self._new_run(stored, None, self._operators.not_kept(stored.config, stored.config, None))
        except AcktrailError as error:
            _LOG.error("connector %s: %s", name, error.message)
            self._runs[name] = error
            return
        self._runs[name] = run
        run.start()

    def _new_run(
        self, stored: StoredConnector, after: ConnectorRun | None = None, lacks: Texts | None = None
    ) -> ConnectorRun:
        resolved = self._resolved(stored.config, lacks or {})
        made = resolved.plan()
        with resolved.redact.errors():
            lease = self._lease_of(made)
        return ConnectorRun(
            made, target=stored.target, lease=lease, notice=_log_event, after=after, redact=resolved.redact
        )

    def _lease_of(self, made: ConnectorPlan) -> WorkLease | None:
        if self._lease is None:
            return None
        owner, ttl_s = self._lease
        terms = LeaseTerms(connector=made.name, owner=owner, ttl_s=ttl_s, reads_logs=made.source.reads_logs)
        return made.sink.lease(terms)

    def _stored(self, name: str) -> StoredConnector:
        with self._lock:
            stored = self._store.all().get(name)
        if stored is None:
            raise UnknownName("connector", name)
        return stored

    def _known(self, name: str) -> ConnectorRun | AcktrailError:
        with self._lock:
            run = self._runs.get(name)
        if run is None:
            raise UnknownName("connector", name)
        return run

    def _planned(self, name: str) -> ConnectorRun:
        run = self._known(name)
        if isinstance(run, AcktrailError):
            raise run
        return run

    def _stopped(self, name: str) -> ConnectorRun:
        run = self._planned(name)
        deadline = time.monotonic() + _STOP_S
        while run.target is not RunState.STOPPED or run.status.state is not RunState.STOPPED or run.tasks():
            if run.target is not RunState.STOPPED or time.monotonic() > deadline:
                raise NotStopped(name)
            time.sleep(_LOOK_S)
        return run


def _check_position(run: ConnectorRun, source_partition: SourcePartition, position: Position) -> None:
    """Ask the source whether reading can continue there, in its own offsets."""
    mark = run.plan.sink.log_marks([source_partition]).get(source_partition)
    shift = 0 if mark is None else mark.offset_shift
    if not shift or not isinstance(position, int):
        run.plan.source.check_position(source_partition, position)
        return
    try:
        run.plan.source.check_position(source_partition, position - shift)
    except InputError as error:
        text = f"{error.message}; offset {position} is {position - shift} there, because the log was replaced"
        raise InputError(text, hint=error.hint, data={**error.data, "offset_shift": shift}) from error


def _log_event(connector: str, event: str, text: str) -> None:
    level = logging.INFO if event.endswith("_ended") else logging.WARNING
    _LOG.log(level, "connector %s: %s", connector, text, extra={"event": event, "connector": connector})
