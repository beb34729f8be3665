"""The main job, end to end, on this machine: broker, share groups at work, the real DAGs, a report."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from acktrail.embedded.airflow.airflow_api import DagRun, TaskRun
from acktrail.embedded.airflow.airflow_standalone import AirflowStandalone
from acktrail.embedded.airflow.dag_files import dags_folder
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.embedded.kafka.kafka_releases import DEFAULT_VERSION
from acktrail.embedded.workload.workload_report import WorkloadReport
from acktrail.embedded.workload.workload_run import DEFAULT_SEED, run_workload
from acktrail.errors import ConfigurationError, MissingDependency

__all__ = ["Demo", "DemoOutcome", "demo_folder"]

EXPORT: Final = "acktrail_export"
RECONCILE: Final = "acktrail_reconcile"
CONNECTION: Final = "acktrail_kafka"
_REPORTED: Final = "acktrail_reported"
_MARKER: Final = ".acktrail-demo"
_PARSE_S: Final = 90.0
_EXPORT_S: Final = 180.0
_RECONCILE_S: Final = 600.0

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """`root` holds ``tables/``, the report, and while it is needed ``broker/`` and ``airflow/``."""

    root: Path

    @property
    def tables(self) -> Path:
        """Root of the Delta tables."""
        return self.root / "tables"

    @property
    def broker(self) -> Path:
        """The broker's data and log."""
        return self.root / "broker"

    @property
    def airflow(self) -> Path:
        """Airflow's configuration, metadata and logs."""
        return self.root / "airflow"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.root / "acktrail-report.html"

    def clear(self) -> None:
        """Remove what a demo made."""
        self.clear_servers()
        shutil.rmtree(self.tables, ignore_errors=True)
        self.report.unlink(missing_ok=True)

    def clear_servers(self) -> None:
        """Remove what broker and Airflow kept; tables and report stay."""
        for folder in (self.broker, self.airflow):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """The result of one run: rows under `run_id` in the tables at `tables_uri`, and the HTML `report`."""

    run_id: str
    tables_uri: str
    report: Path
    workload: WorkloadReport


class Demo:
    """Owns the broker and the Airflow of a demo; both end, and their folders are removed, when the block is left.

    Tables and report stay in `root`. With `keep`, or after a failure, the servers' folders stay too, for their logs.
    `say` is called with each step, `progress` with the workload's (what, steps done, all steps).
    """

    def __init__(
        self,
        root: Path,
        *,
        version: str = DEFAULT_VERSION,
        seed: int = DEFAULT_SEED,
        dags_folder: Path | None = None,
        keep: bool = False,
        say: Say = lambda _text: None,
        progress: Callable[[str, int, int], None] = lambda _doing, _done, _steps: None,
    ) -> None:
        self._root = root
        self._version, self._seed = version, seed
        self._dags_folder = dags_folder
        self._keep = keep
        self._say, self._progress = say, progress
        self._owned = contextlib.ExitStack()
        self._folder: DemoFolder | None = None
        self._broker: EmbeddedBroker | None = None
        self._airflow: AirflowStandalone | None = None

    @property
    def broker(self) -> EmbeddedBroker:
        """The running broker."""
        return _started(self._broker)

    @property
    def airflow(self) -> AirflowStandalone:
        """The running Airflow."""
        return _started(self._airflow)

    @property
    def folder(self) -> DemoFolder:
        """Where everything is."""
        return _started(self._folder)

    def __enter__(self) -> Self:
        dags = _with_dags(self._dags_folder or dags_folder())
        with contextlib.ExitStack() as owned:
            self._folder = owned.enter_context(demo_folder(self._root))
            owned.push(self._leave_folder)
            self._start(owned, self._folder, dags)
            self._owned = owned.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.__exit__(kind, error, trace)

    def run(self) -> DemoOutcome:
        """Workload, export, reconciliation, report.

        Raises what these raise; AirflowNotStarted; DagRunFailed with the end of the failing task's log.
        """
        self._say("share groups go to work while Airflow starts")
        workload = run_workload(self.broker.bootstrap_servers, seed=self._seed, progress=self._progress)
        self._say(f"{len(workload.groups)} share groups are done; waiting for Airflow")
        self.airflow.wait_until_healthy()
        self._say(f"Airflow {self.airflow.url} is healthy")
        run = self._run_dags(self.airflow)
        events = self.airflow.api().asset_events(run.dag_id, run.run_id)
        reported = next(event.extra for event in events if event.asset == _REPORTED)
        return DemoOutcome(
            run_id=reported["run_id"],
            tables_uri=reported["tables_uri"],
            report=Path(reported["report"]),
            workload=workload,
        )

    def resume(self) -> None:
        """Let the scheduler export every minute, and reconcile after each export."""
        self.airflow.api().set_paused(EXPORT, paused=False)

    def _start(self, owned: contextlib.ExitStack, folder: DemoFolder, dags: Path) -> None:
        """Airflow first and without waiting: it takes longest and uses neither disk nor network at first."""
        self._say("Airflow starts in the background")
        env = {
            "ACKTRAIL_TABLES": str(folder.tables),
            "ACKTRAIL_TABLES_OPTIONS": "",
            "ACKTRAIL_REPORTS": str(folder.root),
        }
        self._airflow = AirflowStandalone(dags, folder=folder.airflow, env=env)
        owned.callback(self._airflow.stop)
        self._airflow.launch()
        self._say(f"Kafka {self._version} starts")
        begun = time.monotonic()
        self._broker = EmbeddedBroker(self._version, folder=folder.broker)
        owned.callback(self._broker.stop)
        self._broker.start()
        self._say(
            f"Kafka {self._version} answers at {self._broker.bootstrap_servers} ({time.monotonic() - begun:.1f} s)"
        )

    def _run_dags(self, airflow: AirflowStandalone) -> DagRun:
        """Let the scheduler run the export once and the reconciliation that follows; the reconciliation's run.

        The export is paused as soon as its work is done, so that the next minute's does not compete for the cores.
        """
        api, watch = airflow.api(), airflow.watch()
        api.add_connection(CONNECTION, host=self.broker.bootstrap_servers)
        for dag_id in (RECONCILE, EXPORT):
            watch.wait_for_dag(dag_id, timeout_s=_PARSE_S)
            api.set_paused(dag_id, paused=False)
        exported = watch.wait_for_a_run(EXPORT, timeout_s=_EXPORT_S)
        watch.wait_for_task(exported, "export", timeout_s=_EXPORT_S, progress=self._task(EXPORT))
        api.set_paused(EXPORT, paused=True)
        reconciled = watch.wait_for_a_run(RECONCILE, timeout_s=_EXPORT_S)
        watch.wait_for_run(reconciled, timeout_s=_RECONCILE_S, progress=self._task(RECONCILE))
        return reconciled

    def _task(self, dag_id: str) -> Callable[[TaskRun], None]:
        def show(task: TaskRun) -> None:
            if task.state in ("running", "success", "failed", "up_for_retry"):
                again = f" (try {task.try_number})" if task.try_number > 1 else ""
                self._say(f"{dag_id}: {task.task_id} {task.state}{again}")

        return show

    def _leave_folder(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._keep and (kind is None or issubclass(kind, KeyboardInterrupt)):
            self.folder.clear_servers()


@contextlib.contextmanager
def demo_folder(root: Path) -> Iterator[DemoFolder]:
    """`root`, cleared and locked against other demos.

    Raises:
        ConfigurationError: it holds something that no demo made, another demo is using it, or it cannot be written.
    """
    folder = DemoFolder(root.absolute())
    marker = folder.root / _MARKER
    if folder.root.is_dir() and any(folder.root.iterdir()) and not marker.exists():
        raise ConfigurationError(f"{root} holds files that no demo made", hint="name a new folder with --out")
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        lock = marker.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write to {root}: {error.strerror}", hint="name another with --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"another demo is using {root}", hint="end it, or name another with --out"
            ) from error
        folder.clear()
        yield folder


def _with_dags(folder: Path) -> Path:
    """`folder`. Raises MissingDependency where it does not hold the DAGs."""
    for dag_id in (EXPORT, RECONCILE):
        if not (folder / f"{dag_id}.py").is_file():
            raise MissingDependency(f"no {dag_id}.py in {folder}", hint="name the folder of acktrail's DAG files")
    return folder


def _started(server: T | None) -> T:
    if server is None:
        raise RuntimeError("the demo was not started")
    return server
