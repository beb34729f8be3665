"""How far the export is behind: the ends of what a connector reads against its committed positions, looked up from time
to time on a thread of its own, so that a silent broker does not hold up a scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from acktrail.connect.runtime.connector_run import ConnectorRun
from acktrail.connect.source_batches import LogEnds, LogMark, Position, SourcePartition
from acktrail.errors import AcktrailError

_EVERY_S: Final = 15.0


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
    """Keeps the newest `ExportLag` of each connector of `runs`, looked up every `every_s` seconds."""

    def __init__(self, runs: Callable[[], Mapping[str, ConnectorRun]], every_s: float = _EVERY_S) -> None:
        self._runs, self._every_s = runs, every_s
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="acktrail-lag", daemon=True)
        self.newest: Mapping[str, ExportLag] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; a lookup that waits for a broker is not waited for."""
        self._stop.set()

    def _watch(self) -> None:
        while True:
            runs = self._runs()
            self.newest = {name: export_lag(run) for name, run in runs.items() if run.plan.source.reads_logs}
            if self._stop.wait(self._every_s):
                return
