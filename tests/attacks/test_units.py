"""Another account of the machine: what it gains from a service of acktrail's, and from files that acktrail writes."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from drivers.own_process import free_port, printed

from acktrail.atomic_files import write_whole
from acktrail.config import environment

DEPLOY: Final = Path(__file__).parents[2] / "deploy/services"
UNITS: Final = tuple(sorted(file.name for file in DEPLOY.glob("*.service")))
MOST_EXPOSED: Final = 4.0


def service(unit: str) -> configparser.SectionProxy:
    """A key that a unit repeats counts as written last."""
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    parsed.read(DEPLOY / unit)
    return parsed["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize("unit", UNITS)
def test_a_service_that_is_taken_over_reaches_little(unit: str) -> None:
    """Who runs code in the service finds no other account's files or processes, no device, no right of root: systemd's
    own measure of exposure is at most 4 of 10."""
    said = printed("systemd-analyze", "security", "--offline=true", DEPLOY / unit)
    (exposure,) = re.findall(rf"Overall exposure level for {re.escape(unit)}: ([\d.]+)", said)
    assert float(exposure) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_service_writes_is_not_for_other_accounts(unit: str) -> None:
    """Another account lists no table and no state of a connector: nothing is for the world, folders of systemd's
    included."""
    found = service(unit)
    modes = [value for key, value in found.items() if key.endswith("DirectoryMode")]
    assert found["UMask"] == "0027"
    assert set(modes) <= {"0750"}


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_a_report_is_for_those_whom_the_umask_names(umask: int, expected: int, tmp_path: Path) -> None:
    """Another account reads reports, evidence, plans and anchors where their writer's umask says so; a file with
    secrets never."""
    before = os.umask(umask)
    try:
        report, secret = write_whole("", tmp_path / "report.html"), write_whole("", tmp_path / "secret", mode=0o600)
    finally:
        os.umask(before)
    assert report.stat().st_mode & 0o777 == expected
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_service_starts_and_ends(tmp_path: Path) -> None:
    """The command of its unit, with another port and place: it prints its address, and SIGTERM ends it with 0. (The
    other unit's command: tests/connect/worker/test_deployment.py.)"""
    found = service("acktrail-spark.service")
    command = found["ExecStart"].replace("/opt/acktrail/bin/", f"{Path(sys.executable).parent}/")
    command = re.sub(r"--port \d+", f"--port {free_port()}", command)
    settings = environment(SPARK_CONNECT_AUTHENTICATE_TOKEN="known to the test alone", ACKTRAIL_CACHE=str(tmp_path))
    with subprocess.Popen(shlex.split(command), env=settings, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("sc://localhost:")
        finally:
            server.terminate()
    assert server.returncode == 0
