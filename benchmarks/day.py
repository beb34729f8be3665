"""CPU of all processes that `acktrail_export` and `acktrail_reconcile` start in 24 hours at defaults.

Compared with: a reconciliation every minute; Airflow without a task.

Some minutes are measured and multiplied: the share coordinator of a real broker stores a minute's state changes at
once, then the steps of that minute run as commands, each measured with everything that it starts. Airflow's own
processes are measured apart, by what they take while no task runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import process_tree
from share_state_load import ShareStateLoad
from table import Row
from whole_tree import run_whole

from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.airflow_standalone import AirflowStandalone

ACKTRAIL = str(Path(sys.executable).with_name("acktrail"))
DAGS = Path(__file__).parents[1] / "dags"
MINUTES_OF_A_DAY = 1_440
MINUTES_BETWEEN = 5
"""Default of ACKTRAIL_RECONCILE_EVERY."""
RECONCILIATIONS = {"changing": MINUTES_OF_A_DAY // MINUTES_BETWEEN, "idle": 24}
"""A day's: one every five minutes while something changes, else one an hour."""
_CHECK = (
    "import sys; from acktrail.config import TablesConfig; "
    "from acktrail_jobs.reconcile.reconcile_due import check_due; "
    "check_due(TablesConfig(uri=sys.argv[1]), sys.argv[2], sys.argv[3])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A cluster: groups, partitions of their topic, updates of share-group state a minute."""

    groups: int
    partitions: int
    updates_a_minute: int

    @property
    def name(self) -> str:
        share_partitions = f"{self.groups * self.partitions:,} share partitions"
        return f"{share_partitions}, {self.updates_a_minute / 60:,.0f} updates/s"

    @property
    def reconciliations(self) -> int:
        """How many a day has."""
        return RECONCILIATIONS["changing" if self.updates_a_minute else "idle"]


LOADS = (
    Load(groups=4, partitions=6, updates_a_minute=0),
    Load(groups=10, partitions=10, updates_a_minute=600),
    Load(groups=100, partitions=100, updates_a_minute=60_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU seconds of one minute (export, and the check whether a reconciliation is due) and of one reconciliation
    (observation, reconciliation, validation, report); the largest process in MB."""

    minute_s: float
    reconciliation_s: float
    peak_mb: float

    def of_a_day(self, reconciliations: int) -> float:
        """CPU seconds of a day with so many reconciliations."""
        return MINUTES_OF_A_DAY * self.minute_s + reconciliations * self.reconciliation_s


def compare(
    loads: Sequence[Load] = LOADS, *, minutes: int = 3, reconciliations: int = 2, airflow_s: float | None = 60.0
) -> list[Row]:
    """The table's rows: a day of each load, and of Airflow without a task for `airflow_s` seconds (None: not asked)."""
    rows = [_row(load, _measured(load, minutes, reconciliations)) for load in loads]
    return rows if airflow_s is None else [*rows, _airflow_row(airflow_s)]


def _row(load: Load, cost: Cost) -> Row:
    day_s, each_minute_s = cost.of_a_day(load.reconciliations), cost.of_a_day(MINUTES_OF_A_DAY)
    return Row(
        what=f"a day of {load.name}",
        ours=f"{_share(day_s)}, largest process {cost.peak_mb:,.0f} MB",
        beside=f"reconciled every minute: {_share(each_minute_s)}",
        ratio=f"{each_minute_s / day_s:.1f}x less; a minute {cost.minute_s:.2f} s, "
        f"a reconciliation {cost.reconciliation_s:.1f} s",
    )


def _measured(load: Load, minutes: int, reconciliations: int) -> Cost:
    with (
        EmbeddedBroker() as broker,
        tempfile.TemporaryDirectory() as folder,
        ShareStateLoad(broker.config(), groups=load.groups, partitions=load.partitions) as changes,
    ):
        day = _Day(broker.bootstrap_servers, folder)
        changes.update(load.updates_a_minute)
        day.minute("warm-up")
        day.reconciliation("warm-up")
        exports: list[float] = []
        for number in range(minutes):
            changes.update(load.updates_a_minute)
            exports.append(day.minute(f"minute-{number}"))
        whole: list[float] = []
        for number in range(reconciliations):
            changes.update(MINUTES_BETWEEN * load.updates_a_minute)
            whole.append(day.reconciliation(f"reconciliation-{number}"))
    return Cost(minute_s=statistics.median(exports), reconciliation_s=statistics.median(whole), peak_mb=day.peak_mb)


class _Day:
    """The steps that the DAGs run, as commands on one set of tables."""

    def __init__(self, bootstrap_servers: str, folder: str) -> None:
        self._kafka = ("--bootstrap-server", bootstrap_servers)
        self._tables = f"{folder}/tables"
        self._report = f"{folder}/report.html"
        self.peak_mb = 0.0

    def minute(self, run_id: str) -> float:
        """CPU seconds of an export and of the check after it."""
        exported = self._acktrail("run", "export", "--no-observe", "--run-id", run_id, *self._kafka)
        return exported + self._run(sys.executable, "-c", _CHECK, self._tables, run_id, f"{run_id}-check")

    def reconciliation(self, run_id: str) -> float:
        """CPU seconds of all tasks of one run of acktrail_reconcile."""
        of_run = ("--run-id", run_id)
        return (
            self._acktrail("run", "export", *of_run, *self._kafka)
            + self._acktrail("run", "reconcile", *of_run)
            + self._acktrail("run", "validate", *of_run)
            + self._acktrail("dashboard", "report", *of_run, "--out", self._report)
        )

    def _acktrail(self, *command: str) -> float:
        return self._run(ACKTRAIL, *command, "--tables", self._tables)

    def _run(self, *command: str) -> float:
        done = run_whole(command)
        self.peak_mb = max(self.peak_mb, done.peak_mb)
        return done.cpu_s


def _airflow_row(seconds: float) -> Row:
    """Airflow's own processes with acktrail's DAGs, all paused."""
    with tempfile.TemporaryDirectory() as folder, AirflowStandalone(DAGS, folder=Path(folder)) as airflow:
        airflow.watch().wait_for_dag("acktrail_export", timeout_s=180)
        before = process_tree.cpu_s()
        time.sleep(seconds)
        used = process_tree.cpu_s() - before
    return Row(what="beside that: Airflow without a task", ours=_share(used / seconds * 86_400))


def _share(cpu_s: float) -> str:
    return f"{cpu_s:,.0f} s CPU ({cpu_s / 864:.1f} % of a core)"
