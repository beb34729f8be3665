"""A real Airflow with the project's DAGs: comes up, says why a run fails, and ends with its owner."""

from __future__ import annotations

import json
import os
import signal
import socket
from itertools import count
from pathlib import Path

import pytest
from drivers.airflow_scene import AirflowReviewer
from extras.embedded.processes import eventually, run_owner

from acktrail_embedded.airflow_api import AirflowRefused, DagWatch, task_log
from acktrail_embedded.airflow_standalone import AirflowNotStarted, AirflowStandalone, free_ports, write_settings

DAGS_FOLDER = Path(__file__).resolve().parents[3] / "dags"

OWNER = """
import json, sys, time
from pathlib import Path
from acktrail_embedded.airflow_standalone import AirflowStandalone
with AirflowStandalone(Path(sys.argv[1]), folder=Path(sys.argv[2])) as airflow:
    print(json.dumps([airflow.port, airflow.user, airflow.password]), flush=True)
    time.sleep(600)
"""


def _processes_of(folder: Path) -> list[int]:
    """Every process whose environment names the folder as Airflow's home."""
    wanted = f"AIRFLOW_HOME={folder}".encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and wanted in _environ(entry)]


def _environ(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _commands_of(folder: Path, word: str) -> list[int]:
    """Those with this word on their command line."""
    return [pid for pid in _processes_of(folder) if word.encode() in (Path("/proc") / f"{pid}/cmdline").read_bytes()]


@pytest.mark.airflow
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_airflow_is_guarded_and_leaves_nothing_when_its_owner_is_killed(tmp_path: Path) -> None:
    """It is healthy, guarded by its password and on loopback alone; after SIGKILL to the owner no process of it is
    left and its ports are free."""
    home = (tmp_path / "airflow").resolve()
    owner = run_owner(OWNER, str(DAGS_FOLDER), str(home))
    assert owner.stdout is not None
    try:
        line = owner.stdout.readline()
        assert line, owner.communicate()[1]
        port, user, password = json.loads(line)
        api = AirflowReviewer("127.0.0.1", port, user=user, password=password)
        DagWatch(api, logs=home / "logs").wait_for_dag("acktrail_export", timeout_s=300)
        with pytest.raises(AirflowRefused, match="401"):
            AirflowReviewer("127.0.0.1", port, user=user, password="guess").first_run("acktrail_export")
        assert len(_processes_of(home)) >= 5
        assert _bound_to_loopback(port)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    assert eventually(lambda: not _processes_of(home), within_s=120), _processes_of(home)
    assert eventually(lambda: not _answers(port))


def _bound_to_loopback(port: int) -> bool:
    """Whether the port is listened on, on loopback and nowhere else."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {words[1] for words in lines if words[3] == "0A" and words[1].endswith(f":{port:04X}")} == {
        f"0100007F:{port:04X}"
    }


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.airflow
@pytest.mark.full
def test_airflow_without_its_api_server_is_no_airflow_that_starts(tmp_path: Path) -> None:
    """Airflow's own command goes on when one of its processes has ended. Nobody waits for that one."""
    airflow = AirflowStandalone(DAGS_FOLDER, folder=tmp_path / "airflow").launch()
    try:
        assert eventually(lambda: bool(_commands_of(airflow.folder, "api-server")))
        os.kill(_commands_of(airflow.folder, "api-server")[0], signal.SIGKILL)
        with pytest.raises(AirflowNotStarted, match=r"its process '.+' ended"):
            airflow.wait_until_healthy()
    finally:
        airflow.stop()


def test_settings_share_nothing(tmp_path: Path) -> None:
    """Two Airflows have no secret and no path in common, and their files are for their user only."""
    texts = []
    for name in ("one 100%", "other"):
        home = tmp_path / name
        home.mkdir()
        write_settings(home, dags_folder=DAGS_FOLDER, ports=free_ports(), passwords={"admin": "x"})
        assert {file.stat().st_mode & 0o777 for file in home.iterdir()} == {0o600}
        texts.append((home / "airflow.cfg").read_text())
    secrets = [
        {line for line in text.splitlines() if line.startswith(("fernet_key", "secret_key", "jwt_secret"))}
        for text in texts
    ]
    assert len(secrets[0]) == len(secrets[1]) == 3
    assert not secrets[0] & secrets[1]
    assert f"{tmp_path}/one 100%%/airflow.db" in texts[0]
    assert "0.0.0.0" not in texts[0]


def test_a_machine_with_many_listeners_has_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most ports may be taken. Those that are found differ, and no outgoing connection takes one of them."""
    asked = count()

    class Probe(socket.socket):
        def bind(self, _: object) -> None:
            if next(asked) % 50:
                raise OSError

    monkeypatch.setattr("acktrail_embedded.airflow_standalone.socket.socket", Probe)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len({number for number in free_ports() if 1024 < number < lowest}) == 3


def test_callers_airflow_settings_do_not_reach_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another Airflow's environment is left out; what was asked for is in; the way to itself knows no proxy."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_ACKTRAIL_KAFKA", "kafka://production:9092")
    monkeypatch.setenv("NO_PROXY", "example.org")
    found = AirflowStandalone(DAGS_FOLDER, folder=tmp_path, env={"ACKTRAIL_TABLES": "/t"})._environment()
    assert {name for name in found if name.startswith("AIRFLOW")} == {"AIRFLOW_HOME"}
    assert found["AIRFLOW_HOME"] == str(tmp_path)
    assert found["ACKTRAIL_TABLES"] == "/t"
    assert found["NO_PROXY"] == "example.org,127.0.0.1"
    assert Path(found["PATH"].split(os.pathsep)[0], "airflow").exists()


def test_log_gives_the_last_error_in_one_line(tmp_path: Path) -> None:
    """No log is no reason: the error still says where it would be. Else the reason is the last exception's text on one
    line, whatever else is in the file."""
    log = task_log(tmp_path, "d", "r", "t", 2)
    assert (log.reason, log.tail, log.path.name) == ("", (), "attempt=2.log")
    log.path.parent.mkdir(parents=True)
    failed = {"event": "failed", "level": "error"}
    entries = [
        {"event": "one", "level": "info"},
        {**failed, "error_detail": [{"exc_type": "E", "exc_value": "first"}]},
        {**failed, "error_detail": [{"exc_type": "E", "exc_value": "two\n lines"}]},
        {"event": "bye", "level": "info"},
    ]
    log.path.write_text("not json\n" + "\n".join(map(json.dumps, entries)) + "\n[1]\n")
    again = task_log(tmp_path, "d", "r", "t", 2)
    assert (again.reason, len(again.tail)) == ("two lines", 6)
