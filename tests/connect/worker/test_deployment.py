"""The service and the container file start what there is: a worker whose connector runs."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from drivers.own_process import finished
from servers.connect_worker import ConnectWorker
from servers.workload import until

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, InputError
from acktrail.tables.delta.store import Tables
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SERVICES = DEPLOY / "services"
VIRTUAL_ENVIRONMENT = "/opt/acktrail/bin/"
CONFIGURATION = "/etc/acktrail/"


@pytest.fixture(scope="module")
def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=False)  # a key may be repeated
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    unit.read(SERVICES / "acktrail-connect.service")
    return unit["Service"]


def container_lines() -> dict[str, str]:
    """Instructions of the container file; the last of each kind counts."""
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line for line in lines if len(line) == 2)


def shipped_files() -> dict[str, str]:
    """The configuration of the worker and of its connectors that the wheel brings."""
    return {file.name: file.read_text("utf-8") for file in SERVICES.iterdir() if file.suffix in {".toml", ".json"}}


def test_the_page_shows_what_the_wheel_brings() -> None:
    """Each file is a block of docs/how-to/export-continuously.md, as it is."""
    page = (ROOT / "docs/how-to/export-continuously.md").read_text("utf-8")
    assert [name for name, text in shipped_files().items() if f"\n{text}```" not in page] == []


def test_what_the_header_installs_is_what_the_service_runs(service: configparser.SectionProxy) -> None:
    """The files that the unit's comment says to install are the arguments of its command, and those of the docs."""
    text = (SERVICES / "acktrail-connect.service").read_text("utf-8")
    installed = re.search(rf"install -m 640 -g acktrail (.*) {CONFIGURATION}$", text, re.MULTILINE)
    assert installed
    arguments = shlex.split(service["ExecStart"])[3:]
    assert arguments == [CONFIGURATION + name for name in installed[1].split()]
    assert {argument.removeprefix(CONFIGURATION) for argument in arguments} == shipped_files().keys()


def test_the_service_may_write_where_the_documented_worker_writes(service: configparser.SectionProxy) -> None:
    """Every folder in the worker's file of the docs is the state directory of the unit, or one that it may write."""
    folders = re.findall(r'"(/[^"]*)"', shipped_files()["worker.toml"])
    assert len(folders) > 1
    writable = [Path("/var/lib", service["StateDirectory"])]
    writable += [Path(path.removeprefix("-")) for path in service["ReadWritePaths"].split()]
    assert service["ProtectSystem"] == "strict"
    for folder in map(Path, folders):
        assert any(folder.is_relative_to(path) for path in writable), folder


@pytest.mark.usefixtures("worked")
def test_the_service_runs_the_documented_connectors(
    service: configparser.SectionProxy, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The command of ExecStart with the files of the docs, only paths and addresses put in: connectors and tasks are
    RUNNING, records and observations of share groups are in the tables, and SIGTERM ends it with 0."""
    places = {
        VIRTUAL_ENVIRONMENT: f"{Path(sys.executable).parent}/",
        CONFIGURATION: f"{tmp_path}/etc/",
        "/var/lib/acktrail": str(tmp_path / "lib"),
        "/data/acktrail": str(tmp_path / "data"),
        "127.0.0.1:8083": "127.0.0.1:0",
        "127.0.0.1:9464": "127.0.0.1:0",
        "localhost:9092": broker.bootstrap_servers,
    }
    (tmp_path / "etc").mkdir()
    for name, text in shipped_files().items():
        (tmp_path / "etc" / name).write_text(_replaced(text, places))
    worker = ConnectWorker(tmp_path, [_replaced(word, places) for word in shlex.split(service["ExecStart"])])
    worker.start()
    try:
        until(lambda: _states(worker) == ["RUNNING"] * 4, what="running connectors")
        tables = Tables(TablesConfig(uri=str(tmp_path / "data")))
        tables.begin()  # the worker makes them
        for name in ("state_records", "group_observations"):
            until(lambda name=name: tables.exists(name), what=f"{name} in the tables")
        assert worker.stop() == 0, worker.said
    finally:
        worker.kill()


def _replaced(text: str, places: dict[str, str]) -> str:
    for old, new in places.items():
        text = text.replace(old, new)
    return text


def _states(worker: ConnectWorker) -> list[str]:
    """Of the connectors and their tasks, as REST shows them; none while the worker is not there."""
    assert worker.process is not None
    assert worker.process.poll() is None, worker.said
    if worker.url is None:
        return []
    found = [_asked(worker, f"/connectors/{name}/status") for name in _asked(worker, "/connectors")]
    return [part["state"] for status in found for part in (status["connector"], *status["tasks"])]


def _asked(worker: ConnectWorker, path: str) -> Any:
    code, text = worker.ask("GET", path)
    assert code == 200, text
    return json.loads(text)


def test_the_service_is_not_restarted_for_what_a_person_must_correct(service: configparser.SectionProxy) -> None:
    """The exit codes of wrong input and wrong configuration end the service; others restart it."""
    kept = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert kept == {InputError.exit_code, ConfigurationError.exit_code}
    assert service["Restart"] == "on-failure"


def test_the_container_runs_the_same_command(service: configparser.SectionProxy) -> None:
    """Entry point and arguments of the container file are the service's command line; its program is on the path."""
    lines = container_lines()
    parts = [*_words(lines["ENTRYPOINT"]), *_words(lines["CMD"])]
    assert parts == shlex.split(service["ExecStart"].removeprefix(VIRTUAL_ENVIRONMENT))
    assert lines["STOPSIGNAL"] == service["KillSignal"]


def _words(text: str) -> list[str]:
    return [word.strip().strip('"') for word in text.strip("[]").split(",")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """systemd finds nothing wrong with them, once their program is one that is there."""
    program = Path(sys.executable).parent / "acktrail"
    units = [file for file in SERVICES.iterdir() if file.suffix in {".service", ".timer"}]
    for unit in units:
        text = unit.read_text("utf-8").replace(f"{VIRTUAL_ENVIRONMENT}acktrail", str(program))
        (tmp_path / unit.name).write_text(text)
    done = finished("systemd-analyze", "verify", "--man=no", *(tmp_path / unit.name for unit in units))
    complaints = [line for line in done.stderr.splitlines() if "acktrail" in line]
    assert (done.returncode, complaints) == (0, [])
