"""The worker as a process: files in, connectors and REST until a signal comes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Final

from acktrail.connect.runtime.config_store import ConfigStore
from acktrail.connect.runtime.connector_run import ConnectorRun
from acktrail.connect.runtime.worker import Worker
from acktrail.connect.runtime.worker_config import WorkerConfig, connector_file
from acktrail.connect.signals import stop_on_signals

_LOOK_S: Final = 0.2
_FAILED: Final = 1


def run_standalone(worker_file: Path, connector_files: Sequence[Path]) -> int:
    """Run until SIGINT or SIGTERM, or until every connector is bounded and finished; gives the exit code: 1 when a
    bounded run ended with a failure. Raises ConfigurationError before anything runs."""
    config = WorkerConfig.read(worker_file)
    given = [connector_file(file) for file in connector_files]
    _log_to_stderr()
    worker = Worker(ConfigStore(config.storage), defaults=config.defaults)
    with stop_on_signals() as stop:
        worker.start()
        try:
            for name, texts in given:
                worker.put(name, texts)
            return _wait(worker, stop, is_bounded=not config.listener)
        finally:
            worker.stop()


def _wait(worker: Worker, stop: Event, *, is_bounded: bool) -> int:
    """Until the stop; a worker without REST also ends when nothing is left to do."""
    while not stop.wait(_LOOK_S):
        runs: list[ConnectorRun] = [*worker.runs().values()]
        if is_bounded and runs and all(run.is_finished or run.is_failed for run in runs):
            return _FAILED if any(run.is_failed for run in runs) else 0
    return 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    root = logging.getLogger("acktrail")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
