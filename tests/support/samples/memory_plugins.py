"""A source and a sink in memory as plug-ins, and what their world is like: a broker that hangs, fails or answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from threading import Event
from typing import Any, ClassVar

import pytest
from samples.memory_source import MemoryLog, MemorySink, MemoryTables, MemoryTask

from acktrail.errors import InputError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import ConfigDef, ConfigKey, ConfigType
from acktrail_connect.contract import Config, SinkConnector, SinkTaskContext, SourceConnector, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.worker import plugins
from acktrail_connect.worker.plugins import PluginKind

__all__ = ["WORLD", "MemorySinkConnector", "MemorySource", "MemoryWorld", "memory_plugins"]


@dataclass(slots=True, kw_only=True)
class MemoryWorld:
    """What the plug-ins read and write. `answers` cleared: the broker does not answer. `start_error` and `poll_error`
    make an error of a configuration, which may quote all of it."""

    logs: list[MemoryLog] = field(default_factory=lambda: [MemoryLog(), MemoryLog(partition=1)])
    tables: MemoryTables = field(default_factory=MemoryTables)
    answers: Event = field(default_factory=Event)
    start_error: Any = None
    poll_error: Any = None

    def wait(self) -> None:
        assert self.answers.wait(60)


WORLD: list[MemoryWorld] = []


class _Task(MemoryTask):
    def __init__(self, config: Config) -> None:
        own = [log for log in WORLD[-1].logs if log.partition in config["partitions"]]
        super().__init__(own, is_continuous=True)
        self._config = config

    def start(self, context: SourceTaskContext) -> None:
        WORLD[-1].wait()
        super().start(context)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        if WORLD[-1].poll_error is not None:
            raise WORLD[-1].poll_error(self._config["full"])
        found = super().poll(timeout_s)
        if not found:
            Event().wait(min(timeout_s, 0.01))
        return found


class MemorySource(SourceConnector):
    """Reads the logs of the world."""

    description = "Logs in memory."
    reads_logs = True
    cluster_id = "memory"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="memory.word", type=ConfigType.STRING, documentation="Any word.", default="w", says_where=False
            ),
            ConfigKey(name="memory.sasl.password", type=ConfigType.STRING, documentation="A secret.", default=None),
            ConfigKey(name="memory.hush", type=ConfigType.PASSWORD, documentation="Another.", default=None),
            ConfigKey(name="memory.secret.number", type=ConfigType.INT, documentation="A third.", default=None),
        ],
        {"memory.client.": "anything"},
    )

    def start(self) -> None:
        WORLD[-1].wait()
        if WORLD[-1].start_error is not None:
            raise WORLD[-1].start_error(self.config)

    def task_configs(self, most: int) -> Sequence[Config]:
        numbers = [log.partition for log in WORLD[-1].logs]
        word = self.config["memory.word"]
        return [{"partitions": numbers[start::most], "word": word} for start in range(min(most, len(numbers)))]

    def task(self, config: Config) -> _Task:
        return _Task({**config, "full": self.config})

    def source_partitions(self) -> Sequence[SourcePartition]:
        return [SourcePartition(f"memory/{log.topic_id}/{log.partition}") for log in WORLD[-1].logs]

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, int) or position < 0:
            raise InputError("a position is a number from 0")


class MemorySinkConnector(SinkConnector):
    """Writes the tables of the world."""

    description = "Tables in memory."
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [ConfigKey(name="memory.token", type=ConfigType.PASSWORD, documentation="A secret.", default=None)]
    )

    def task(self, context: SinkTaskContext) -> MemorySink:
        return MemorySink(WORLD[-1].tables)

    def positions(
        self, connector: str, source_partitions: Sequence[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        WORLD[-1].wait()
        known = WORLD[-1].tables.positions
        return {each: known[each] for each in source_partitions if each in known}

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        for source_partition, position in positions.items():
            if position is None:
                WORLD[-1].tables.positions.pop(source_partition, None)
            else:
                WORLD[-1].tables.positions[source_partition] = position


@contextmanager
def memory_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryWorld]:
    """Within the block, MemorySource and MemorySink are installed, and there is one world for them."""
    world = MemoryWorld()
    world.answers.set()
    before = plugins._installed
    extra = {
        PluginKind.SOURCE: EntryPoint("MemorySource", f"{__name__}:MemorySource", "acktrail.connect.sources"),
        PluginKind.SINK: EntryPoint("MemorySink", f"{__name__}:MemorySinkConnector", "acktrail.connect.sinks"),
    }

    def installed(kind: PluginKind) -> Mapping[str, EntryPoint]:
        own = {extra[kind].name: extra[kind]} if kind in extra else {}
        return {**before(kind), **own}

    monkeypatch.setattr(plugins, "_installed", installed)
    WORLD.append(world)
    try:
        yield world
    finally:
        world.answers.set()
        WORLD.remove(world)
