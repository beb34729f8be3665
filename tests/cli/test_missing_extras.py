"""A command that lacks a package names the smallest extra that brings it, in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest
from drivers.own_process import finished

from acktrail.branches import is_there
from acktrail.text_parsing import parse_json
from acktrail_embedded import EmbeddedBroker

ROOT: Final = Path(__file__).parents[2]
OF_KAFKA: Final = ("kafka", "google_crc32c", "prometheus_client", "starlette", "uvicorn")
OF_OTHERS: Final = (
    "airflow", "confluent_kafka", "deltalake", "fastapi", "great_expectations", "grpc", "jinja2", "mcp", "numpy",
    "obstore", "pandas", "pyarrow", "pyspark", "zstandard",
)  # fmt: skip
WITHOUT: Final = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Hidden())
from acktrail.cli.main import main
main()
"""
BARE: Final = {
    "groups list": "kafka",
    "groups metrics": "kafka",
    "doctor": "kafka",
    "change list": "kafka,tables",
    "run export": "kafka,tables",
    "run reconcile": "spark",
    "run history": "spark",
    "run validate": "quality",
    "run stream": "kafka,spark",
    "record show billing orders 0 1": "tables",
    "record state": "spark",
    "status": "tables",
    "findings": "tables",
    "tables maintain": "tables",
    "tables verify": "spark",
    "tables metrics": "connect",
    "dashboard report --out r.html": "tables",
    "dashboard serve": "dashboard",
    "connect standalone w.toml": "connect",
    **({"expand check orders": "kafka,tables"} if is_there("acktrail_expansion:x") else {}),
    **({"mcp": "mcp"} if is_there("acktrail_mcp:x") else {}),
    **({"broker start": "demo"} if is_there("acktrail_embedded:x") else {}),
    **({"demo": "demo"} if is_there("acktrail_demo:x") else {}),
}
"""A command, and what it names beside an acktrail without any extra. Those of branches only where these are."""


def run(command: str, hidden: tuple[str, ...], folder: Path, **named: str) -> CompletedProcess[str]:
    """A command where these packages are not installed."""
    places = os.pathsep.join(str(ROOT / each) for each in (".", "connectors", "extras", "spark_jobs"))
    environment = {**os.environ, **named, "PYTHONPATH": places}
    return finished(sys.executable, "-c", WITHOUT.format(hidden=hidden), *command.split(), cwd=folder, env=environment)


def said(command: str, hidden: tuple[str, ...], folder: Path) -> str:
    """What a command says that fails where these packages are not installed."""
    named = {"ACKTRAIL_BOOTSTRAP_SERVERS": "127.0.0.1:1", "ACKTRAIL_TABLES": str(folder)}
    done = run(command, hidden, folder, **named)
    assert done.returncode != 0
    return done.stderr.strip()


@pytest.mark.parametrize("command", BARE)
def test_bare_wheel_names_the_extra_of_each_command(command: str, tmp_path: Path) -> None:
    """One line, with the command of pip that installs what is missing and no more."""
    text = said(command, (*OF_KAFKA, *OF_OTHERS), tmp_path)

    assert len(text.splitlines()) == 1
    assert "is not installed, which `acktrail" in text
    assert f"[{BARE[command]}]" in text


@pytest.mark.parametrize("command", ["doctor", "change list", "run export", "status", "groups delete billing"])
def test_extra_that_is_installed_is_not_named(command: str, tmp_path: Path) -> None:
    """With the extra `kafka` only `tables` is missing."""
    assert "[tables]" in said(command, OF_OTHERS, tmp_path)


@pytest.mark.parametrize("command", ["groups list", "groups describe billing", "groups metrics"])
def test_groups_need_only_the_extra_kafka(command: str, tmp_path: Path) -> None:
    """Without Arrow, NumPy and librdkafka the command asks the broker."""
    assert "no Kafka broker answered at 127.0.0.1:1" in said(command, OF_OTHERS, tmp_path)


def test_doctor_checks_the_broker_with_only_the_extra_kafka(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Every check of the broker is made. Tables that are named are missing, with the extra; without a name, a note says
    so. Java is not needed."""
    command = f"doctor --json --acls export --bootstrap-server {broker.bootstrap_servers}"
    done = [run(f"{command}{named}", OF_OTHERS, tmp_path) for named in ("", f" --tables {tmp_path}")]
    rows = [{row["what"]: row for row in map(parse_json, each.stdout.splitlines())} for each in done]
    of_tables = [each.pop("tables") for each in rows]

    assert [each.returncode for each in done] == [0, 3]
    assert [each["status"] for each in of_tables] == ["note", "missing"]
    assert all("[tables]" in each["hint"] and "deltalake" not in each["hint"] for each in of_tables)
    assert {"cluster", "release", "DESCRIBE on groups", "DESCRIBE_CONFIGS on groups"} <= rows[1].keys()
    assert rows[1]["READ on __share_group_state"]["status"] == "ok"
    assert any(what.startswith("ACL for export") for what in rows[1])
    assert not {"Java", "audit"} & rows[1].keys()
