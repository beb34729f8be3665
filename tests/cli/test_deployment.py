"""The service and the container file start what there is: their command lines are commands of acktrail."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acktrail.errors import ConfigurationError, InputError

DEPLOY = Path(__file__).parents[2] / "deploy"
VIRTUAL_ENVIRONMENT = "/opt/acktrail/bin/"


@pytest.fixture(scope="module")
def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    unit.read(DEPLOY / "acktrail-connect.service")
    return unit["Service"]


def container_lines() -> dict[str, str]:
    """Instructions of the container file; the last of each kind counts."""
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line for line in lines if len(line) == 2)


def test_the_service_runs_a_command_that_exists(service: configparser.SectionProxy) -> None:
    """Up to the worker's file, the command line of ExecStart is understood: asked for its help, it answers."""
    command = shlex.split(service["ExecStart"])
    assert command[0] == f"{VIRTUAL_ENVIRONMENT}acktrail"
    program = shutil.which("acktrail", path=str(Path(sys.executable).parent))
    assert program is not None
    asked = subprocess.run([program, *command[1:3], "--help"], capture_output=True, text=True, check=True)
    assert "standalone" in asked.stdout


def test_the_service_is_not_restarted_for_what_a_person_must_correct(service: configparser.SectionProxy) -> None:
    """The exit codes of wrong input and wrong configuration end the service; others restart it."""
    kept = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert kept == {InputError.exit_code, ConfigurationError.exit_code}
    assert service["Restart"] == "on-failure"


def test_the_container_runs_the_same_command(service: configparser.SectionProxy) -> None:
    """Entry point and arguments of the container file are the service's command line."""
    lines = container_lines()
    parts = [*_words(lines["ENTRYPOINT"]), *_words(lines["CMD"])]
    assert parts == shlex.split(service["ExecStart"])
    assert lines["STOPSIGNAL"] == service["KillSignal"]


def _words(text: str) -> list[str]:
    return [word.strip().strip('"') for word in text.strip("[]").split(",")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_systemd_understands_the_service(tmp_path: Path) -> None:
    """systemd finds nothing wrong with the unit, once its program is one that is there."""
    program = Path(sys.executable).parent / "acktrail"
    unit = tmp_path / "acktrail-connect.service"
    text = (DEPLOY / unit.name).read_text("utf-8")
    unit.write_text(text.replace(f"{VIRTUAL_ENVIRONMENT}acktrail", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, complaints) == (0, [])
