"""What every source promises, with positions or without: its life cycle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from acktrail.connect.contract import SourceConnector, SourceTask, SourceTaskContext
from acktrail.connect.source_batches import SourcePartition
from acktrail.connect.testing.connector_suite import ConnectorSuite


class SourceLifeSuite(ConnectorSuite):
    """The part that ``SourceSuite`` and ``ObservationSuite`` have in common."""

    def prepare_rows(self) -> None:
        """Let there be something to read."""

    def found_partitions(self) -> set[SourcePartition]:
        """The source partitions of what is there to read."""
        raise NotImplementedError

    def test_stop_needs_no_start_and_may_come_twice(self) -> None:
        """Connector and task can be stopped at any time."""
        connector = self.connector()
        connector.stop()
        connector.start()
        for config in connector.task_configs(1):
            task = connector.task(config)
            task.stop()
            task.stop()
        connector.stop()
        connector.stop()

    def test_tasks_are_no_more_than_asked_for(self) -> None:
        """At least one part of the work, no more than wanted, each of JSON."""
        self.prepare_rows()
        connector = self.connector()
        connector.start()
        for most in (1, 2, 7):
            configs = connector.task_configs(most)
            assert 1 <= len(configs) <= most, f"{len(configs)} tasks, wanted were 1 to {most}"
            assert json.loads(json.dumps(list(configs))) == list(configs), "a task's configuration is not JSON"
            assert not [config for config in configs if None in config.values()], "a task's configuration has null"
        connector.stop()

    def test_fields_name_a_source_partition(self) -> None:
        """What REST shows of a source partition leads back to it, today and for another object of the connector."""
        self.prepare_rows()
        connector, other = self.connector(), self.connector()
        connector.start()
        for each in self.found_partitions() | {*connector.source_partitions()}:
            fields = json.loads(json.dumps(dict(connector.fields_of(each))))
            assert connector.source_partition(fields) == each, f"{fields} does not lead back to {each}"
            assert dict(other.fields_of(each)) == fields, "another object gives other fields"
        connector.stop()

    @contextmanager
    def running(
        self, position: Any = lambda _: None, most: int = 1, *, stop: Event | None = None
    ) -> Iterator[list[SourceTask]]:
        """Started tasks, which are stopped at the end. `position` and `stop` are the context's."""
        connector: SourceConnector = self.connector()
        tasks: list[SourceTask] = []
        try:
            connector.start()
            for config in connector.task_configs(most):
                tasks.append(connector.task(config))
                tasks[-1].start(SourceTaskContext(position=position, stop=stop or Event()))
            yield tasks
        finally:
            for task in tasks:
                task.stop()
            connector.stop()
