"""docs/how-to/alerts.md, done as it says: with the files that the wheel brings, a group that loses its consumers raises
an alert that Prometheus shows as pending, then as firing, and that ends when its consumers are back."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.own_process import finished, free_port, printed
from servers.workload import Workload, until
from view.test_live_metrics import asked, is_ready, prometheus, served

from acktrail.config import environment
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

BIN: Final = Path(sys.executable).parent
PAGE: Final = (Path(__file__).parents[2] / "docs/how-to/alerts.md").read_text("utf-8")
ALERT: Final = "AcktrailGroupUnattended"


def line_of(program: str) -> str:
    """The line of the page that calls `program`."""
    (line,) = re.findall(rf"^(?:\S*/)?{re.escape(program)}.*$", PAGE, re.MULTILINE)
    return str(line)


def in_their_place(folder: Path, texts: Mapping[str, str]) -> None:
    """Put the places of this test into the files: a machine that has no folders of acktrail's, and ports that are free.
    A minute becomes a second."""
    for file in (each for each in folder.rglob("*") if each.suffix in {".toml", ".service", ".env", ".yml", ".json"}):
        text = file.read_text("utf-8")
        for old, new in texts.items():
            text = text.replace(old, new)
        file.write_text(text)


def commands(unit: Path) -> list[list[str]]:
    """The command lines of a unit, in their order."""
    return [shlex.split(line) for line in re.findall(r"^ExecStart=(.*)$", unit.read_text("utf-8"), re.MULTILINE)]


def settings(unit: Path) -> dict[str, str]:
    """The variables that a unit has."""
    found = re.findall(r"^Environment(File)?=-?(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    files = [Path(value) for is_file, value in found if is_file]
    lines = [value for is_file, value in found if not is_file]
    lines += [line for file in files if file.exists() for line in file.read_text("utf-8").splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@contextmanager
def started(unit: Path) -> Iterator[None]:
    """The service of a unit, ended as systemd ends it."""
    (command,) = commands(unit)
    with subprocess.Popen(command, env=environment(**settings(unit)), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()
            said = process.communicate()[1]
    assert process.returncode == 0, said


def reconciled(unit: Path) -> None:
    """What the timer starts, once."""
    for command in commands(unit):
        done = finished(*command, env=environment(**settings(unit)))
        assert done.returncode == 0, done.stderr


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)")
def test_abandoned_group_raises_an_alert_that_ends(broker: EmbeddedBroker, workload: Workload, tmp_path: Path) -> None:
    """The page's units and rules; only places, ports and times are this test's own."""
    out = tmp_path / "acktrail-files"
    printed(BIN / "acktrail", *shlex.split(line_of("acktrail config files"))[1:-1], out)
    ports = {name: str(free_port()) for name in ("8083", "9464", "9465", "8085")}
    in_their_place(
        out,
        {
            "/opt/acktrail/bin/": f"{BIN}/",
            "/etc/acktrail/": f"{out}/services/",
            "/var/lib/acktrail": str(tmp_path / "state"),
            "/var/cache/acktrail": str(tmp_path / "cache"),
            "/data/acktrail": str(tmp_path / "tables"),
            "localhost:9092": broker.bootstrap_servers,
            **{f"127.0.0.1:{old}": f"127.0.0.1:{new}" for old, new in ports.items()},
            "--port 8085": f"--port {ports['8085']}",
            "--listen": "--every 1s --listen",
            "interval: 30s": "interval: 1s",
            "for: 15m": "for: 3s",
            '"interval.ms": "60000"': '"interval.ms": "1000"',
            "alertmanagers: [": "alertmanagers: []  # no other machine's: [",
        },
    )
    services, group, topic = out / "services", f"desk-{tmp_path.name}", f"bills-{tmp_path.name}"
    workload.create_topic(topic)
    workload.produce(topic, 10)
    workload.acknowledge(group, topic, 4)  # and its consumer is gone
    with ExitStack() as running:
        for name in ("connect", "metrics"):
            running.enter_context(started(services / f"acktrail-{name}.service"))
        server = running.enter_context(prometheus(out / "prometheus"))
        up = until(lambda: every(asked(server, "targets")["activeTargets"], is_up), what="both targets")
        assert {target["labels"]["job"] for target in up} == {"acktrail-worker", "acktrail-tables"}
        until(lambda: observed(server, group), what="an observation")
        assert ("series", "missing") in doctors(server, broker, tmp_path)
        reconciled(services / "acktrail-reconcile.service")
        running.enter_context(
            started(services / "acktrail-dashboard.service")
        )  # until there are tables, systemd tries again
        firing = until(lambda: firing_alert(server, group), what="the alert")
        assert firing["labels"]["severity"] == "warning"
        # a scrape that takes longer than this test's second is one that is missing
        found = until(lambda: without_missing(doctors(server, broker, tmp_path)), what="all series")
        assert [what for what, status in found if status == "note"][-2:] == ["Alertmanager", "alerts"]
        pending = f'count_over_time(ALERTS{{alertname="{ALERT}", alertstate="pending", group="{group}"}}[1h])'
        assert asked(server, "query", query=pending)["result"]
        for link in ("dashboard_url", "runbook_url"):
            assert until(lambda link=link: is_ready(firing["annotations"][link]), what=f"the page of {link}")
        workload.acknowledge(group, topic, 6)
        until(lambda: observed(server, group) == [0.0], what="the end of the lag in an observation")
        reconciled(services / "acktrail-reconcile.service")
        until(lambda: not alerts(server, group), what="the end of the alert")
        others = [alert for alert in asked(server, "alerts")["alerts"] if "group" not in alert["labels"]]
        assert others == []


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)")
def test_doctor_finds_why_no_alert_would_come(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A job without the name that alerts look for, no rules, no series; or no Prometheus at all."""
    with served("--bootstrap-server", broker.bootstrap_servers) as address:
        target = address.removeprefix("http://").removesuffix("/metrics")
        scraped = {"job_name": "kafka", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scraped]}))  # JSON is YAML
        with prometheus(tmp_path) as server:
            until(lambda: asked(server, "query", query="acktrail_build_info")["result"], what="a scrape")
            found = dict(doctors(server, broker, tmp_path))
            assert [found[what] for what in ("Prometheus", "scrape jobs", "alert rules", "series")] == [
                "ok",
                *["missing"] * 3,
            ]
        assert dict(doctors(server, broker, tmp_path))["Prometheus"] == "missing"


def doctors(server: str, broker: EmbeddedBroker, folder: Path) -> list[tuple[str, str]]:
    """What `acktrail doctor --alerts` finds: checks and their statuses."""
    where = ("--tables", folder / "tables", "--bootstrap-server", broker.bootstrap_servers)
    done = finished(BIN / "acktrail", "doctor", "--json", "--alerts", server, *where)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (3 if any(row["status"] == "missing" for row in rows) else 0), done.stderr
    return [(row["what"], row["status"]) for row in rows]


def without_missing(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What was found, once nothing is missing."""
    return found if all(status != "missing" for _, status in found) else []


def is_up(target: Mapping[str, Any]) -> bool:
    return bool(target["health"] == "up")


def every(found: list[dict[str, Any]], holds: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """All of them, once each is as it should be."""
    return found if all(map(holds, found)) else []


def observed(server: str, group: str) -> list[float]:
    """The lag of the group, by the worker's newest observation."""
    found = asked(server, "query", query=f'kafka_share_group_lag_sum{{group="{group}"}}')["result"]
    return [float(each["value"][1]) for each in found]


def alerts(server: str, group: str) -> list[dict[str, Any]]:
    found = asked(server, "alerts")["alerts"]
    return [each for each in found if each["labels"].get("group") == group and each["labels"]["alertname"] == ALERT]


def firing_alert(server: str, group: str) -> dict[str, Any] | None:
    return next((each for each in alerts(server, group) if each["state"] == "firing"), None)
