"""A source that follows a folder of JSON-lines files, as a program writes them that begins a new file now and then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import pyarrow as pa

from acktrail.errors import ConfigurationError, InputError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import NON_EMPTY, ConfigDef, ConfigKey, ConfigType, Importance
from acktrail_connect.contract import Config, SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

LINES = 1_000
"""The most lines of one poll."""
_LONGEST = 2**63


class JournalSource(SourceConnector):
    """Files are read in the order of their names; only the last one grows."""

    description = "Follows a folder of JSON-lines files."
    config_def = ConfigDef(
        [
            ConfigKey(
                name="folder",
                type=ConfigType.STRING,
                documentation="The folder whose *.jsonl files are read, in the order of their names.",
                importance=Importance.HIGH,
                validator=NON_EMPTY,
            ),
            ConfigKey(name="table", type=ConfigType.STRING, default="journal", documentation="Where the rows go."),
            ConfigKey(
                name="bounded",
                type=ConfigType.BOOLEAN,
                default=False,
                documentation="End when everything has been read, instead of waiting for more.",
            ),
        ]
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._folder = Path(config["folder"]).absolute()

    def start(self) -> None:
        if not self._folder.is_dir():
            raise ConfigurationError(f"{self._folder} is no folder", hint="set folder")

    def task_configs(self, most: int) -> Sequence[Config]:
        return [{}]  # files have one order: one part of the work

    def task(self, config: Config) -> JournalTask:
        return JournalTask(self._folder, self.config["table"], bounded=self.config["bounded"])

    def source_partitions(self) -> Sequence[SourcePartition]:
        return [_partition(self._folder)]

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        return {"folder": source_partition.removeprefix("journal:")}

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if set(fields) != {"folder"}:
            raise InputError("a source partition of JournalSource is an object with the text folder")
        return _partition(fields["folder"])

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, Mapping) or set(position) != {"file", "line"}:
            raise InputError('a position of JournalSource is {"file": NAME, "line": LINES READ}')


class JournalTask(SourceTask):
    """Reads complete lines; the position is the file and how many of its lines have been read."""

    def __init__(self, folder: Path, table: str, *, bounded: bool) -> None:
        self._folder, self._table, self._bounded = folder, table, bounded
        self._file, self._line = "", 0
        self._open: BinaryIO | None = None
        self._stop, self._at_end = Event(), False

    def start(self, context: SourceTaskContext) -> None:
        self._stop = context.stop
        position = context.position(_partition(self._folder))
        if isinstance(position, Mapping):
            self._file, self._line = position["file"], position["line"]

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        rows = list(islice(self._rows(), LINES))
        self._at_end = not rows
        if not rows and not self._bounded:
            self._stop.wait(timeout_s)  # ends early when the worker stops
        # A sink takes or refuses a batch as a whole: rows of one shape, so that no good row shares a bad one's fate.
        return [self._batch(list(same)) for _, same in groupby(rows, key=_shape)]

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def is_finished(self) -> bool:
        return self._bounded and self._at_end

    def _batch(self, rows: list[dict[str, Any]]) -> SourceBatch:
        last = rows[-1]
        return SourceBatch(
            source_partition=_partition(self._folder),
            rows={self._table: pa.Table.from_pylist(rows)},
            position={"file": last["journal_file"], "line": last["journal_line"]},
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        while self._open is not None or self._open_next():
            assert self._open is not None
            before, line = self._open.tell(), self._open.readline()
            is_whole = line.endswith(b"\n")
            later = None if is_whole else self._later()
            if is_whole or (line and later):
                self._line += 1
                yield {"journal_file": self._file, "journal_line": self._line, **_entry(line)}
            elif later:
                self.stop()
                self._file, self._line = later, 0
            else:
                self._open.seek(before)  # half a line: its writer is not done
                return

    def _open_next(self) -> bool:
        names = sorted(file.name for file in self._folder.glob("*.jsonl"))
        name = next((name for name in names if name >= self._file), None)
        if name is None:
            return False
        if name != self._file:  # the file of the position was removed
            self._file, self._line = name, 0
        self._open = (self._folder / name).open("rb")
        for _ in range(self._line):
            self._open.readline()
        return True

    def _later(self) -> str | None:
        return min((file.name for file in self._folder.glob("*.jsonl") if file.name > self._file), default=None)


def _partition(folder: Path | str) -> SourcePartition:
    return SourcePartition(f"journal:{folder}")


def _entry(line: bytes) -> dict[str, Any]:
    """A line that is no object of JSON is kept as it is."""
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    try:
        entry = json.loads(text)
    except ValueError:
        return {"unreadable": text}
    return {key: _value(value) for key, value in entry.items()} if isinstance(entry, dict) else {"unreadable": text}


def _value(value: Any) -> Any:
    """Numbers that no column holds, and what is nested, as text."""
    is_large = isinstance(value, int) and not -_LONGEST <= value < _LONGEST
    return json.dumps(value) if is_large or isinstance(value, dict | list) else value


def _shape(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, type(value).__name__) for name, value in row.items())
