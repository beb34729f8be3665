"""The worker as a process: files in, connectors and REST until a signal comes."""

from __future__ import annotations

import datetime as dt
import json
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from acktrail.activity import stop_on_signals
from acktrail.secrets import without_user_info
from acktrail.text_tables import printable
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.operator_texts import OperatorTexts
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import WorkerConfig, cluster_of, connector_file

_LOG: Final = logging.getLogger("acktrail.connect")
_LOOK_S: Final = 0.2
_FAILED: Final = 1


def run_standalone(worker_file: Path, connector_files: Sequence[Path]) -> int:
    """Run until SIGINT or SIGTERM, or until every connector is bounded and finished; gives the exit code: 1 when a
    bounded run ended with a failure. Raises ConfigurationError before anything runs."""
    config = WorkerConfig.read(worker_file).withholding(connector_files)
    given = dict(connector_file(file) for file in connector_files)
    operators = OperatorTexts(config.defaults, given, config.providers)
    owner = config["worker.name"] or f"{socket.gethostname()}:{worker_file.absolute()}"
    lease = (owner, config["lease.ttl.ms"] / 1_000) if config["lease"] else None
    store = ConfigStore(config.file("config.storage.dir"))
    own_cluster = partial(cluster_of, config.defaults, config.providers.unbounded())
    worker = Worker(store, operators=operators, lease=lease, own_cluster=own_cluster)
    log_to_stderr(as_json=config["log.format"] == "json", redact=worker.redact_all)
    for fault in store.faults:
        _LOG.error("ignored: %s", printable(fault.with_hint), extra={"event": "connector_unreadable"})
    with stop_on_signals() as stop, ExitStack() as serving:
        _serve(worker, config, serving)
        worker.start()
        return _wait(worker, stop, is_bounded=not config.has_rest)


def _serve(worker: Worker, config: WorkerConfig, serving: ExitStack) -> None:
    """Metrics and REST, where they are configured. In the end REST is closed first, then the worker stops."""
    if config["metrics.listener"] is not None:
        from acktrail_connect.worker.worker_metrics import metrics_served

        address = serving.enter_context(metrics_served(worker, config["metrics.listener"]))
        _LOG.info("metrics at %s", address, extra={"event": "metrics_started"})
    serving.callback(worker.stop)
    if config.has_rest:
        from acktrail_connect.worker.rest.application import rest_server  # a worker without it needs no FastAPI

        server = serving.enter_context(rest_server(worker, config))
        sys.stderr.write(f"REST interface at {server.url}\n")
        sys.stderr.flush()


def _wait(worker: Worker, stop: Event, *, is_bounded: bool) -> int:
    """Until the stop; a worker without REST also ends when nothing is left to do."""
    while not stop.wait(_LOOK_S):
        runs = worker.runs().values()
        if is_bounded and runs and all(run.is_finished or run.is_failed for run in runs):
            return _FAILED if any(run.is_failed for run in runs) else 0
    return 0


class _Lines(logging.Formatter):
    """Secrets hidden, of a message and of a traceback. As text; or as JSON, one object a line: time, level, stable
    event name, connector where there is one, text."""

    def __init__(self, redact: Callable[[str], str], *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
        self._redact, self._is_json = redact, as_json

    def format(self, record: logging.LogRecord) -> str:
        shown = copy(record)
        shown.msg, shown.args = without_user_info(self._redact(record.getMessage())), None
        if record.exc_info:
            text = self._redact(self.formatException(record.exc_info))
            shown.exc_info, shown.exc_text = None, without_user_info(text)
        if not self._is_json:
            return super().format(shown)
        line = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": getattr(record, "event", "log"),
            "connector": getattr(record, "connector", None),
            "message": shown.msg,
        }
        return json.dumps({name: value for name, value in line.items() if value is not None})


def log_to_stderr(*, as_json: bool, redact: Callable[[str], str] = str) -> None:
    """Send acktrail's log to stderr, as lines of text or of JSON; `redact` hides secrets in messages and tracebacks."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(redact, as_json=as_json))
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # its warnings are ours already, or of no use
    root = logging.getLogger("acktrail")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
