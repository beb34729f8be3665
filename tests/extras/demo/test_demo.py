"""``acktrail demo`` as a user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from drivers.own_process import finished
from extras.embedded.processes import DEFAULT_SIGNALS, eventually

from acktrail_demo.faults.library import faults_on
from acktrail_demo.workload.scenario import MISBEHAVING
from acktrail_embedded import DEFAULT_VERSION

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.timeout(1200),
]

TUTORIAL = Path(__file__).parents[3] / "docs/tutorials/demo.md"
ACKTRAIL = str(Path(sys.executable).parent / "acktrail")


def _processes_of(folder: Path) -> list[int]:
    """Every process that works in the folder, by its command line or its environment."""
    others = (each for each in psutil.process_iter(["cmdline", "environ"]) if each.pid != os.getpid())
    return [each.pid for each in others if str(folder) in str(each.info)]


@pytest.mark.full  # a run of the wheel's demo is part of CI; tests/dags and test_faults have the rest in parts
def test_demo_from_broker_to_report(tmp_path: Path) -> None:
    """Summary on stdout, steps on stderr, one HTML file that needs no network; every verdict a match; nothing left.

    Then faults go into the state topic: the gate of the second run stops the DAG, and exactly the faults are found.
    """
    out = tmp_path / "demo"
    run = finished(ACKTRAIL, "demo", "--with-faults", "--out", out, timeout=None)
    assert run.returncode == 0, run.stdout + run.stderr
    assert eventually(lambda: not _processes_of(out)), _processes_of(out)
    report = f"Report: {out}/reports/acktrail-report-"
    for wanted in ("fraud-scoring", "ARCHIVED", "LAG", "Verdicts", "Findings", report):
        assert wanted in run.stdout
    assert re.search(r"^Verdicts +\d+ match$", run.stdout, flags=re.MULTILINE), run.stdout
    assert run.stderr.count("acktrail_reconcile: publish success") == 2, "it looks twice: there is something to compare"
    assert re.search(r"^Rules +\d+ hold(, \d+ (noted|not evaluated))*$", run.stdout, flags=re.MULTILINE), run.stdout
    assert "Traceback" not in run.stderr
    faults = len(faults_on(DEFAULT_VERSION))
    assert f"{faults} of {faults} faults found, nothing else" in run.stdout
    for group, status in MISBEHAVING.items():
        assert f"after misbehaving consumers of {group} left: {status}\n" in run.stdout
    assert "gate: DAG acktrail_reconcile failed in task validate: " in run.stdout
    named = re.findall(r"^\| `(\w+)` \|", TUTORIAL.read_text("utf-8"), flags=re.MULTILINE)
    assert len(named) == 6
    assert [name for name in named if not re.search(rf"^{name}\b", run.stdout, flags=re.MULTILINE)] == []
    page = (out / "reports" / "acktrail-report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert {path.name for path in out.iterdir()} == {".acktrail-demo", "reports", "tables"}


@pytest.mark.parametrize(("number", "after"), [(signal.SIGKILL, "answers at"), (signal.SIGTERM, "Kafka")])
def test_a_demo_that_is_ended_early_leaves_no_process(tmp_path: Path, number: signal.Signals, after: str) -> None:
    """However and whenever it ends, broker, Airflow and all that they started end with it."""
    out = tmp_path / "demo"
    demo = subprocess.Popen(
        [*DEFAULT_SIGNALS, ACKTRAIL, "demo", "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stderr is not None
    try:
        assert any(after in line for line in demo.stderr), "it ended before that"
        assert _processes_of(out)
        demo.send_signal(number)
        _, rest = demo.communicate(timeout=120)
    finally:
        demo.kill()
        demo.wait()
    assert eventually(lambda: not _processes_of(out)), _processes_of(out)
    if number == signal.SIGTERM:
        assert demo.returncode == 130
        assert "Traceback" not in rest
        assert not (out / "airflow").exists()
