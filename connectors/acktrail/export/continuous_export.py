"""The export that runs for days: it resumes after every outage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from typing import Final

from acktrail.backoff import Outage
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.runtime.task_execution import FlushPolicy, Progress
from acktrail.errors import InputError, OutcomeUnknown, RetryableError
from acktrail.export.export_run import CONNECTORS, Deadline, ExportRun, ExportSummary, check_connectors
from acktrail.times import new_run_id

_TOPIC_PAUSE_S: Final = 2.0


def export_continuously(
    kafka: KafkaConfig,
    tables: TablesConfig,
    *,
    stop: Event,
    run_id: str | None = None,
    connectors: Sequence[str] = CONNECTORS,
    observe_every_s: float | None = 300.0,
    policy: FlushPolicy | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
) -> ExportSummary:
    """Copy the cluster's share-group state into the tables as it is written, until `stop` is set.

    Every `observe_every_s` seconds (None: never) the brokers are sampled before and after, under a run id of its own,
    as `acktrail run reconcile` needs it. Another writer on the same tables, an outage of broker or storage, and a
    cluster without a state topic do not end it. `notice` gets one line when an outage begins and one when it ends. What
    a person must correct is raised: ConfigurationError, InputError.
    """
    check_connectors(connectors)
    if "state" not in connectors:
        raise InputError("a continuous export follows the state topic", hint="leave out --connector offsets")
    outage = Outage(lambda _, text: notice(f"export {text}"))

    def on_progress(now: Progress) -> None:
        if not now.pending_rows:
            outage.end()
        progress(now)

    run = ExportRun(kafka, tables, run_id, stop, policy, on_progress)
    every_s = math.inf if observe_every_s is None or "offsets" not in connectors else observe_every_s
    follower = _Follower(run, stop, every_s, notice)
    while not stop.is_set():
        try:
            with run.open():
                follower.run()
        except (RetryableError, OutcomeUnknown) as error:
            stop.wait(outage.begin(error))
    return replace(run.summary(), status="stopped")


class _Follower:
    """Reads continuously, and observes at once and then every `every_s` seconds (infinite: never)."""

    def __init__(self, run: ExportRun, stop: Event, every_s: float, notice: Callable[[str], None]) -> None:
        self._export, self._stop, self._every_s, self._notice = run, stop, every_s, notice
        self._observe_at = math.inf if every_s == math.inf else time.monotonic()
        self._waits = False

    def run(self) -> None:
        """Until the stop. Raises the error that ends the reading."""
        while not self._stop.is_set():
            left_s = self._observe_at - time.monotonic()
            if left_s <= 0:
                self._observe_at = time.monotonic() + self._every_s
                self._export.observe(new_run_id(), follows=True)
                continue
            self._export.read_state(bounded=False, stop=Deadline(self._stop, seconds=left_s))
            if self._export.is_topic_absent:
                if not self._waits:
                    self._notice("waiting for the state topic: no share consumer has come to this cluster yet")
                self._waits = True
                self._stop.wait(min(left_s, _TOPIC_PAUSE_S))
