"""The worker: a set of connectors that a person creates, looks at and changes; what the REST interface calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, Final

from acktrail.connect.config_def import HIDDEN, shown
from acktrail.connect.contract import Config
from acktrail.connect.runtime.config_store import ConfigStore, StoredConnector
from acktrail.connect.runtime.connector_config import plan, validate
from acktrail.connect.runtime.connector_run import ConnectorRun, WorkLease
from acktrail.connect.runtime.states import RunState, RunStatus, TargetState
from acktrail.connect.runtime.task_thread import TaskThread
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import AcktrailError, InputError, InvalidConfiguration, UnknownName

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.01
_STOP_S: Final = 60.0

Texts = Mapping[str, Any]


class ConnectorConflict(InputError):
    """The connector is not in the state that this needs, or its name is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """A source partition and its position as REST shows them: two objects of JSON; offset None: to be removed."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


class Worker:
    """Runs connectors. Every method may be called from any thread.

    `defaults` are keys that every connector has unless its own configuration says otherwise. `resolve` replaces
    references to secrets in a text. `lease` gives what keeps a second worker standing by, for a connector's plan.
    """

    def __init__(
        self,
        store: ConfigStore,
        *,
        defaults: Texts | None = None,
        resolve: Callable[[str], str] = lambda text: text,
        lease: Callable[[str, Texts], WorkLease] | None = None,
    ) -> None:
        self._store, self._defaults, self._resolve, self._lease = store, dict(defaults or {}), resolve, lease
        self._lock = RLock()
        self._runs: dict[str, ConnectorRun | AcktrailError] = {}
        self.started_at = time.time()

    def start(self) -> None:
        """Run what the store has. A connector whose configuration is wrong by now is FAILED; the others run."""
        with self._lock:
            for name, stored in self._store.all().items():
                self._run(name, stored)

    def stop(self) -> None:
        """End all connectors, with a last commit each."""
        with self._lock:
            runs = [run for run in self._runs.values() if isinstance(run, ConnectorRun)]
        for run in runs:
            run.aim(run.target)
        for run in runs:
            run.end()

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._runs)

    def config(self, name: str) -> dict[str, Any]:
        """The configuration as it may be shown: secrets that are not references are hidden. Raises UnknownName."""
        return {key: shown(key, value) for key, value in self._stored(name).config.items()}

    def target(self, name: str) -> TargetState:
        """What is wanted of the connector. Raises UnknownName."""
        return self._stored(name).target

    def status(self, name: str) -> RunStatus:
        """The connector's own state. Raises UnknownName."""
        run = self._known(name)
        if isinstance(run, ConnectorRun):
            return run.status
        return RunStatus(state=RunState.FAILED, trace=run.message)

    def tasks(self, name: str) -> list[tuple[Config, TaskThread]]:
        """The tasks in their order. Raises UnknownName."""
        run = self._known(name)
        return run.tasks() if isinstance(run, ConnectorRun) else []

    def runs(self) -> dict[str, ConnectorRun]:
        """The connectors that could be planned, by name."""
        with self._lock:
            return {name: run for name, run in self._runs.items() if isinstance(run, ConnectorRun)}

    def create(self, name: str, config: Texts, target: TargetState = TargetState.STARTED) -> None:
        """Add a connector and run it. Raises ConnectorConflict when there is one of this name, else as ``put``."""
        with self._lock:
            if name in self._runs:
                raise ConnectorConflict(f"Connector {name} already exists", hint="change it: PUT its config")
            self._put(name, config, target)

    def put(self, name: str, config: Texts) -> bool:
        """Create a connector or replace its configuration; whether it is new. Raises InvalidConfiguration with all that
        is wrong."""
        with self._lock:
            is_new = name not in self._runs
            self._put(name, config, TargetState.STARTED if is_new else self.target(name))
        return is_new

    def patch(self, name: str, changes: Texts) -> None:
        """Change some keys; null removes one. Raises UnknownName, InvalidConfiguration."""
        with self._lock:
            config = {**self._stored(name).config, **changes}
            self._put(name, {key: value for key, value in config.items() if value is not None}, self.target(name))

    def delete(self, name: str) -> None:
        """Stop and forget a connector; what it wrote stays. Raises UnknownName."""
        with self._lock:
            run = self._known(name)
            self._store.remove(name)
            del self._runs[name]
        if isinstance(run, ConnectorRun):
            run.end()

    def aim(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop. Raises UnknownName."""
        with self._lock:
            run = self._known(name)
            self._store.put(name, replace(self._stored(name), target=target))
            if isinstance(run, ConnectorRun):
                run.aim(target)

    def restart(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart the connector, and its tasks if asked; `only_failed`: those that failed. Raises UnknownName, and
        InvalidConfiguration where that is why it failed and nothing changed."""
        with self._lock:
            run = self._known(name)
            if isinstance(run, ConnectorRun):
                run.restart(include_tasks=include_tasks, only_failed=only_failed)
            else:
                self._put(name, self._stored(name).config, self.target(name))

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task. Raises UnknownName."""
        run = self._known(name)
        if not isinstance(run, ConnectorRun) or not 0 <= number < len(run.tasks()):
            raise UnknownName("task", f"{name}-{number}")
        run.restart_task(number)

    def offsets(self, name: str) -> list[OffsetEntry]:
        """The committed positions, in the order of the source's partitions. Raises UnknownName, and what reaching
        cluster or storage raises."""
        run = self._planned(name)
        source = run.plan.source
        return [
            OffsetEntry(partition=source.fields_of(each), offset=_offset(position))
            for each, position in run.positions().items()
        ]

    def alter_offsets(self, name: str, entries: Iterable[OffsetEntry]) -> None:
        """Set the positions of a stopped connector. Raises UnknownName, ConnectorConflict (it is not stopped),
        InputError (an entry is wrong, or rows would be lost or doubled: nothing was changed)."""
        run = self._stopped(name)
        run.positions()  # the source knows its partitions now
        source = run.plan.source
        positions: dict[SourcePartition, Position | None] = {}
        for entry in entries:
            source_partition = source.source_partition(entry.partition)
            position = None if entry.offset is None else _position(entry.offset)
            if position is not None:
                source.check_position(source_partition, position)
            if source_partition in positions:
                raise InputError(f"{dict(entry.partition)} is named twice")
            positions[source_partition] = position
        if not positions:
            raise InputError("no offsets are named", hint='{"offsets": [{"partition": {...}, "offset": {...}}]}')
        run.plan.sink.alter_positions(name, positions)

    def reset_offsets(self, name: str) -> None:
        """Remove all positions of a stopped connector. Raises as ``alter_offsets``."""
        run = self._stopped(name)
        run.plan.sink.alter_positions(name, dict.fromkeys(run.positions()))

    def validate(self, config: Texts) -> list[Any]:
        """Every key with its value and what is wrong with it, and the definition of each: (ConfigKey or None,
        ConfigValue)."""
        keys, values = validate(self._resolved(config))
        return [(keys.keys.get(value.name), value) for value in values]

    def _put(self, name: str, config: Texts, target: TargetState) -> None:
        named = config.get("name", name)
        if named != name:
            raise InputError(f"Connector name configuration ({named}) doesn't match connector name {name}")
        before = self._store.all().get(name)
        kept = {
            key: before.config.get(key) if value == HIDDEN and before is not None else value
            for key, value in {**config, "name": name}.items()
        }
        stored = StoredConnector(config=kept, target=target)
        made = self._new_run(name, stored)  # raises before anything is changed
        old = self._runs.get(name)
        self._store.put(name, stored)
        if isinstance(old, ConnectorRun):
            old.end()
        self._runs[name] = made
        made.start()

    def _run(self, name: str, stored: StoredConnector) -> None:
        try:
            run = self._new_run(name, stored)
        except AcktrailError as error:
            _LOG.error("connector %s: %s", name, error.message)
            self._runs[name] = error
            return
        self._runs[name] = run
        run.start()

    def _new_run(self, name: str, stored: StoredConnector) -> ConnectorRun:
        resolved = self._resolved(stored.config)
        made = plan(resolved)
        lease = None if self._lease is None else self._lease(name, resolved)
        return ConnectorRun(made, target=stored.target, lease=lease, notice=_log_event)

    def _resolved(self, config: Texts) -> dict[str, Any]:
        merged = {**self._usable_defaults(config), **config}
        resolved, wrong = {}, {}
        for key, value in merged.items():
            try:
                resolved[key] = self._resolve(value) if isinstance(value, str) else value
            except AcktrailError as error:
                wrong[key] = (f"{key}: {error.message}",)
        if wrong:
            raise InvalidConfiguration(wrong)
        return resolved

    def _usable_defaults(self, config: Texts) -> dict[str, Any]:
        """The worker's defaults that this connector knows: one sink's keys mean nothing to another."""
        keys, _ = validate({**self._defaults, **config})
        prefixes = tuple(keys.open_prefixes)
        return {
            key: value
            for key, value in self._defaults.items()
            if key in keys.keys or (prefixes and key.startswith(prefixes))
        }

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
        if run.target is not TargetState.STOPPED:
            raise ConnectorConflict(
                f"Connector {name} is not stopped: its offsets cannot be changed",
                hint=f"PUT /connectors/{name}/stop first",
            )
        deadline = time.monotonic() + _STOP_S
        while run.status.state is not RunState.STOPPED:
            if time.monotonic() > deadline:
                raise ConnectorConflict(f"Connector {name} is still stopping", hint="ask again in a moment")
            time.sleep(_LOOK_S)
        return run


def _offset(position: Position) -> Mapping[str, Any]:
    return {"offset": position} if isinstance(position, int) else position


def _position(offset: Mapping[str, Any]) -> Position:
    number = offset.get("offset")
    return number if set(offset) == {"offset"} and isinstance(number, int) else offset


def _log_event(connector: str, event: str, text: str) -> None:
    level = logging.INFO if event.endswith("_ended") else logging.WARNING
    _LOG.log(level, "connector %s: %s", connector, text, extra={"event": event, "connector": connector})
