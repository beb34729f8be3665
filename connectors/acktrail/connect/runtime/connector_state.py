"""What a person wants of a worker's connectors, kept as files of a folder or in memory; and the states they are in."""

from __future__ import annotations

import hashlib
import json
import os
import traceback
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from acktrail.errors import AcktrailError, ConfigurationError

_LONGEST: Final = 200
_SHOWN: Final = 100


class RunState(StrEnum):
    """What a connector or a task does. UNASSIGNED: it waits for its first start, or another worker runs it."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


class TargetState(StrEnum):
    """What a person wants. PAUSED keeps the tasks, STOPPED has none: only then positions can be changed."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A state, and why: `trace` is one line and its hint for an error that was raised on purpose, else a traceback. A
    running task has a trace while an outage lasts, and while it may not see everything (``SourceTask.limits``)."""

    state: RunState
    trace: str = ""


def trace_of(error: Exception) -> str:
    """An error as the `trace` of a `RunStatus`."""
    return error.with_hint if isinstance(error, AcktrailError) else "".join(traceback.format_exception(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnector:
    """A configuration as it was given, references to secrets unresolved, and what a person wants."""

    config: Mapping[str, Any]
    target: TargetState = TargetState.STARTED


class ConfigStore:
    """Connectors by name. `folder` None: they live as long as the process. A file is written beside and renamed, so
    that a crash leaves the old or the new one; only its owner may read it. Raises ConfigurationError when the folder
    cannot be read or written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._connectors: dict[str, StoredConnector] = {}
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                files = sorted(folder.glob("*.json"))
            except OSError as error:
                raise _unusable(folder, error) from error
            self._connectors = dict(map(_read, files))

    def all(self) -> dict[str, StoredConnector]:
        """A copy, by name."""
        return dict(self._connectors)

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep it, in place of another of this name."""
        if self._folder is not None:
            content = {"name": name, "config": dict(connector.config), "target": connector.target.value}
            file = self._file(name)
            beside = file.with_suffix(".new")
            try:
                with os.fdopen(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as opened:
                    json.dump(content, opened, indent=2)
                    opened.flush()
                    os.fsync(opened.fileno())
                beside.replace(file)
            except OSError as error:
                raise _unusable(self._folder, error) from error
        self._connectors[name] = connector

    def remove(self, name: str) -> None:
        """Forget it."""
        if self._folder is not None:
            self._file(name).unlink(missing_ok=True)
        del self._connectors[name]

    def _file(self, name: str) -> Path:
        assert self._folder is not None
        quoted = urllib.parse.quote(name, safe="").replace(".", "%2E")
        if len(quoted) > _LONGEST:  # a file's name has at most 255 bytes
            quoted = f"{quoted[:_SHOWN]}-{hashlib.sha256(name.encode()).hexdigest()}"
        return self._folder / f"{quoted}.json"


def _read(file: Path) -> tuple[str, StoredConnector]:
    try:
        content = json.loads(file.read_text("utf-8"))
        return content["name"], StoredConnector(config=content["config"], target=TargetState(content["target"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{file} is no connector's file: {type(error).__name__}", hint="remove it, or restore it from a backup"
        ) from error


def _unusable(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{folder} cannot be used: {error.strerror}", hint="the worker keeps connectors there")
