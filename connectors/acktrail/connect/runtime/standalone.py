"""The worker as a process: files in, connectors and REST until a signal comes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from acktrail import secrets
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
    resolve = partial(secrets.resolve, base=worker_file.absolute().parent, folders=config.secret_folders)
    worker = Worker(ConfigStore(config.storage), defaults=config.defaults, resolve=resolve)
    with stop_on_signals() as stop:
        try:
            with _rest(worker, config):
                worker.start()
                for name, texts in given:
                    worker.put(name, texts)
                return _wait(worker, stop, is_bounded=not config.listener)
        finally:
            worker.stop()


@contextmanager
def _rest(worker: Worker, config: WorkerConfig) -> Iterator[None]:
    """The REST interface, where one is configured."""
    if not config.listener:
        yield
        return
    from acktrail.connect.rest.rest_server import RestServer  # a worker without it needs no FastAPI

    with RestServer(worker, config) as server:
        sys.stderr.write(f"REST interface at {server.url}\n")
        sys.stderr.flush()
        yield


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
