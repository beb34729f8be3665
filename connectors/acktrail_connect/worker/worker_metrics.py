"""The worker's metrics, made at every scrape from what its connectors know, and how far their export is behind.

The lag is the ends of what a connector reads against its committed positions. It is looked up from time to time on a
thread of its own, so that a silent broker does not hold up a scrape.

Names are ``acktrail_<subject>_<unit>``; those of share groups are the five that other exporters use
(``kafka_share_group_lag`` and so on), so that dashboards fit. Labels never hold an error's text or a member's id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from acktrail.errors import AcktrailError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.package_data import metric_definitions
from acktrail.serving.gauge_families import Family, build_info, families, family_of
from acktrail.serving.metrics_endpoint import collector_served, repeated
from acktrail_connect.source_batches import LogEnds, LogMark
from acktrail_connect.worker.connector_run import ConnectorRun
from acktrail_connect.worker.task_thread import RunState, TaskThread
from acktrail_connect.worker.worker import Worker

_EVERY_S: Final = 15.0
_DEFINITIONS: Final = metric_definitions("acktrail_connect", "worker")
_COUNTERS: Final = (
    ("records_read", "records_exported_total"),
    ("records_quarantined", "records_quarantined_total"),
    ("bytes_read", "bytes_exported_total"),
    ("commits", "commits_total"),
    ("gap_count", "gaps_total"),
    ("gap_offsets", "gap_offsets_total"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLag:
    """Records between the committed positions and the ends, by source partition; None: not known, for `reason`.
    `seen_at` is when, in seconds since the epoch."""

    records: Mapping[SourcePartition, int | None]
    reason: str
    seen_at: float


def export_lag(run: ConnectorRun, clock: Callable[[], float] = time.time) -> ExportLag:
    """Ask now. A partition that was never committed is behind by all of its log. The lag is not known where the log may
    be another one than the exported one: a position lies behind its end (positions are looked up first), or it has a
    new leader and was not compared since."""
    source = run.plan.source
    try:
        known = source.source_partitions() or list(source.ends())
        reached = run.plan.sink.positions(run.plan.name, known)
        marks = run.plan.sink.log_marks(known)
        ends = source.ends()
    except Exception as error:  # noqa: BLE001  # a plug-in's own: the lag is not known, and the watch continues
        reason = error.message if isinstance(error, AcktrailError) else type(error).__name__
        return ExportLag(records=dict.fromkeys(source.source_partitions()), reason=reason, seen_at=clock())
    behind = {each: _behind(reached.get(each), marks.get(each, LogMark()), end) for each, end in ends.items()}
    return ExportLag(records=behind, reason="", seen_at=clock())


def _behind(position: Position | None, mark: LogMark, ends: LogEnds) -> int | None:
    """How many records lie behind `position`; None: not known."""
    if position is None:
        return ends.end - ends.first
    if None not in (mark.leader_epoch, ends.leader_epoch) and mark.leader_epoch != ends.leader_epoch:
        return None
    end = ends.end + mark.offset_shift
    return end - position if isinstance(position, int) and position <= end else None


class LagWatch:
    """Keeps the newest `ExportLag` of each connector of `runs`."""

    def __init__(self, runs: Callable[[], Mapping[str, ConnectorRun]]) -> None:
        self._runs = runs
        self.newest: Mapping[str, ExportLag] = {}

    def look(self) -> None:
        """Look them up now."""
        runs = self._runs()
        self.newest = {name: export_lag(run) for name, run in runs.items() if run.plan.source.reads_logs}


class WorkerMetrics(Collector):
    """Collects from `worker`, and the export lag from `lag`. At most `most_partitions` source
    partitions of a connector have series of their own; its sum has all of them."""

    def __init__(self, worker: Worker, lag: LagWatch, *, most_partitions: int = 1_000) -> None:
        self._worker, self._lag, self._most_partitions = worker, lag, most_partitions

    def collect(self) -> Iterator[Metric]:
        """All families, in the same order every time."""
        yield build_info()
        tasks = [
            (name, str(number), task)
            for name in self._worker.names()
            for number, task in enumerate(self._worker.tasks(name))
        ]
        yield from self._states(tasks)
        yield from self._counts(tasks)
        yield from self._export_lag(self._lag.newest)
        yield from families(gauge for _, _, task in tasks for gauge in task.gauges())

    def _states(self, tasks: Iterable[tuple[str, str, TaskThread]]) -> Iterator[Metric]:
        connectors = _family("connector_state")
        for name in self._worker.names():
            _one_hot(connectors, [name], self._worker.status(name).state)
        states = _family("task_state")
        outages = _family("task_outage")
        success = _family("last_success_timestamp_seconds")
        for name, number, task in tasks:
            _one_hot(states, [name, number], task.status.state)
            outages.add_metric([name, number], float(task.is_in_outage))
            if task.last_success_at is not None:
                success.add_metric([name, number], task.last_success_at)
        yield from (connectors, states, outages, success)

    def _counts(self, tasks: Iterable[tuple[str, str, TaskThread]]) -> Iterator[Metric]:
        counters = {count: _family(name) for count, name in _COUNTERS}
        rows = _family("rows_committed_total")
        errors = _family("task_errors_total")
        for name, number, task in tasks:
            done = task.summary
            for count, family in counters.items():
                family.add_metric([name, number], getattr(done, count))
            for table, written in sorted(done.rows.items()):
                rows.add_metric([name, number, table], written)
            for error, seen in sorted(task.errors.items()):
                errors.add_metric([name, number, error], seen)
        yield from (*counters.values(), rows, errors)

    def _export_lag(self, newest: Mapping[str, ExportLag]) -> Iterator[Metric]:
        total = _family("export_lag_records")
        each = _family("export_partition_lag_records")
        unknown = _family("export_lag_unknown_partitions")
        seen = _family("export_lag_timestamp_seconds")
        for name, lag in newest.items():
            known = {part: count for part, count in lag.records.items() if count is not None}
            missing = len(lag.records) - len(known)
            unknown.add_metric([name], missing or float(bool(lag.reason)))
            if not missing and not lag.reason:
                total.add_metric([name], sum(known.values()))
            for part, count in sorted(known.items())[: self._most_partitions]:
                each.add_metric([name, part], count)
            seen.add_metric([name], lag.seen_at)
        yield from (total, each, unknown, seen)


def _family(name: str) -> Family:
    return family_of(_DEFINITIONS[f"acktrail_{name}"])


def _one_hot(family: Family, labels: list[str], state: RunState) -> None:
    for each in RunState:
        family.add_metric([*labels, each.value], float(each is state))


@contextmanager
def metrics_served(worker: Worker, listener: str) -> Iterator[str]:
    """Serve ``/metrics`` of `worker` at `listener` within the block; gives the address. Raises as
    `collector_served`."""
    lag = LagWatch(worker.runs)
    with (
        collector_served(WorkerMetrics(worker, lag), listener, "metrics.listener") as address,
        repeated(lag.look, _EVERY_S, "acktrail-lag"),
    ):
        yield address
