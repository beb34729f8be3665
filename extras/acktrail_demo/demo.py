"""The main job, end to end, on this machine: broker, share groups at work, the real DAGs, a report."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.history.observed_run import newest_run
from acktrail.package_data import dags_folder
from acktrail.tables.delta.store import Tables
from acktrail_demo.faults.library import FoundFaults, StateFault, find_faults, signs_in_run
from acktrail_demo.workload.demo_cluster import inject_faults
from acktrail_demo.workload.scenario import FAULT_GROUP, FAULT_RECORDS, FAULT_TOPIC, MISBEHAVING
from acktrail_demo.workload.workload_run import run_workload
from acktrail_embedded.airflow_api import DagRun, DagRunFailed, TaskRun
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

EXPORT: Final = "acktrail_export"
RECONCILE: Final = "acktrail_reconcile"
CONNECTION: Final = "acktrail_kafka"
_REPORTED: Final = "acktrail_reported"
_MARKER: Final = ".acktrail-demo"
_PARSE_S: Final = 90.0
_EXPORT_S: Final = 180.0
_RECONCILE_S: Final = 600.0

Say = Callable[[str], None]


class DemoFolder:
    """The Delta tables and the reports of a demo, and the folders of its servers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tables, self.reports = root / "tables", root / "reports"
        self.broker, self.airflow = root / "broker", root / "airflow"

    def clear_servers(self) -> None:
        """Remove what broker and Airflow kept; tables and reports stay."""
        for folder in (self.broker, self.airflow):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyRun:
    """A run with faults. `statuses`: of the groups whose consumers misbehaved, each status of their share partitions.
    `stopped`: why its gate stopped it; None: it passed."""

    run_id: str
    found: FoundFaults
    statuses: Mapping[str, frozenset[str]]
    stopped: str | None

    @property
    def is_exact(self) -> bool:
        """Whether exactly the faults were found, and what remains of each misbehaviour."""
        return self.found.is_exact and all(self.statuses[group] == {status} for group, status in MISBEHAVING.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A running broker and an Airflow that starts. `say` is called with each step, `progress` with the workload's
    (activity, steps done, all steps)."""

    broker: EmbeddedBroker
    airflow: AirflowStandalone
    say: Say
    progress: Callable[[str, int, int], None]

    def run(self, *, fault_partitions: int = 0) -> Mapping[str, str]:
        """Workload, export, two reconciliations, report: ``run_id`` of the rows, ``tables_uri``, ``report``.

        `fault_partitions`: of the topic that `inject` needs. Raises what these raise; AirflowNotStarted; DagRunFailed
        with the end of the failing task's log.
        """
        self.say("share groups go to work while Airflow starts")
        workload = run_workload(
            self.broker.bootstrap_servers, fault_partitions=fault_partitions, progress=self.progress
        )
        self.say(f"{len(workload.ledgers)} share groups are done; waiting for Airflow")
        self.airflow.wait_until_healthy()
        self.say(f"Airflow {self.airflow.url} is healthy")
        run = self._run_dags()
        events = self.airflow.api().asset_events(run.dag_id, run.run_id)
        return next(extra for asset, extra in events if asset == _REPORTED)

    def inject(self, faults: Sequence[StateFault], clean: Mapping[str, str]) -> FaultyRun:
        """Let `faults` happen after `run`, which returned `clean`, and reconcile again: what is found of them, and what
        stopped the run, if anything did.

        Raises what these raise; DagRunFailed: the run failed before its gate.
        """
        self.say(f"{len(faults)} faults go into the state topic; the broker loads them")
        injected = inject_faults(self.broker, faults, group_id=FAULT_GROUP, topic=FAULT_TOPIC, records=FAULT_RECORDS)
        stored = Tables(TablesConfig(uri=clean["tables_uri"]))
        known = signs_in_run(stored, clean["run_id"])
        run = self.airflow.api().trigger(RECONCILE)
        stopped = None
        try:
            self.airflow.watch().wait_for_run(run, timeout_s=_RECONCILE_S, progress=partial(self._show, RECONCILE))
        except DagRunFailed as failed:
            if newest_run(stored) == clean["run_id"] or not signs_in_run(stored, newest_run(stored)) - known:
                raise
            stopped = str(failed)
        run_id = newest_run(stored)
        found = find_faults(stored, run_id, injected, known=known)
        return FaultyRun(run_id=run_id, found=found, statuses=_statuses(stored), stopped=stopped)

    def resume(self) -> None:
        """Let the scheduler export every minute, and reconcile after each export."""
        self.airflow.api().set_paused(EXPORT, paused=False)

    def _run_dags(self) -> DagRun:
        """Let the scheduler run the export once and the reconciliation that follows, then a second one, which has
        something to compare with: its run.

        The export is paused as soon as its work is done, so that the next minute's does not compete for the cores.
        """
        api, watch = self.airflow.api(), self.airflow.watch()
        api.add_connection(CONNECTION, host=self.broker.bootstrap_servers)
        for dag_id in (RECONCILE, EXPORT):
            watch.wait_for_dag(dag_id, timeout_s=_PARSE_S)
            api.set_paused(dag_id, paused=False)
        exported = watch.wait_for_a_run(EXPORT, timeout_s=_EXPORT_S)
        watch.wait_for_run(exported, timeout_s=_EXPORT_S, task_id="export", progress=partial(self._show, EXPORT))
        api.set_paused(EXPORT, paused=True)
        reconciled = watch.wait_for_a_run(RECONCILE, timeout_s=_EXPORT_S)
        watch.wait_for_run(reconciled, timeout_s=_RECONCILE_S, progress=partial(self._show, RECONCILE))
        self.say("a second look, to compare with the first one")
        again = api.trigger(RECONCILE)
        watch.wait_for_run(again, timeout_s=_RECONCILE_S, progress=partial(self._show, RECONCILE))
        return again

    def _show(self, dag_id: str, task: TaskRun) -> None:
        if task.state in ("running", "success", "failed", "up_for_retry"):
            again = f" (try {task.try_number})" if task.try_number > 1 else ""
            self.say(f"{dag_id}: {task.task_id} {task.state}{again}")


def _statuses(stored: Tables) -> dict[str, frozenset[str]]:
    """Of the groups that misbehaved: the statuses of their share partitions."""
    rows = stored.read("queue_statuses", columns=["group_id", "status"]).to_pylist()
    return {group: frozenset(row["status"] for row in rows if row["group_id"] == group) for group in MISBEHAVING}


@contextlib.contextmanager
def running_demo(root: Path, *, version: str, say: Say, progress: Callable[[str, int, int], None]) -> Iterator[Demo]:
    """Starts a broker and an Airflow with acktrail's DAGs; both end with the block.

    Tables and reports stay in `root`. The servers' folders are removed, except after a failure, when their logs are
    wanted.

    Raises ConfigurationError, MissingDependency: `root` cannot be used, a server is not installed; BrokerNotStarted
    with the last lines of its log.
    """
    with contextlib.ExitStack() as owned:
        folder = owned.enter_context(demo_folder(root))

        def clear_servers(kind: type[BaseException] | None, *_: object) -> None:
            if kind is None or issubclass(kind, KeyboardInterrupt):
                folder.clear_servers()

        owned.push(clear_servers)
        # Airflow first and without waiting: it takes longest and uses neither disk nor network at first.
        say("Airflow starts in the background")
        places = {"ACKTRAIL_TABLES": str(folder.tables), "ACKTRAIL_REPORTS": str(folder.reports)}
        none = dict.fromkeys(("ACKTRAIL_TABLES_OPTIONS", "ACKTRAIL_PROFILE", "ACKTRAIL_DAG_PROFILES"), "")
        airflow = AirflowStandalone(dags_folder(), folder=folder.airflow, env={**places, **none})
        owned.callback(airflow.stop)
        airflow.launch()
        say(f"Kafka {version} starts")
        begun = time.monotonic()
        broker = EmbeddedBroker(version, folder=folder.broker)
        owned.callback(broker.stop)
        broker.start()
        say(f"Kafka {version} answers at {broker.bootstrap_servers} ({time.monotonic() - begun:.1f} s)")
        yield Demo(broker=broker, airflow=airflow, say=say, progress=progress)


@contextlib.contextmanager
def demo_folder(root: Path) -> Iterator[DemoFolder]:
    """`root`, cleared and locked against other demos.

    Raises ConfigurationError: it holds something that no demo made, another demo is using it, or it cannot be written.
    """
    folder = DemoFolder(root.absolute())
    marker = folder.root / _MARKER
    if folder.root.is_dir() and any(folder.root.iterdir()) and not marker.exists():
        raise ConfigurationError(
            f"{root} contains files that the demo did not make", hint="give a new folder with --out"
        )
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        lock = marker.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {root}: {error.strerror}", hint="give another folder with --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"another demo is using {root}", hint="stop it, or give another folder with --out"
            ) from error
        folder.clear_servers()
        for of_the_last_one in (folder.tables, folder.reports):
            shutil.rmtree(of_the_last_one, ignore_errors=True)
        yield folder
