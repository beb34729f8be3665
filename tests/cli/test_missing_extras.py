"""A command that lacks a package names the smallest extra that brings it, in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest
from drivers.own_process import finished

from acktrail.branches import is_there

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
    "doctor": "kafka,tables",
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


def said(command: str, hidden: tuple[str, ...], folder: Path) -> str:
    """What a command says where these packages are not installed."""
    named = {"ACKTRAIL_BOOTSTRAP_SERVERS": "127.0.0.1:1", "ACKTRAIL_TABLES": str(folder)}
    places = os.pathsep.join(str(ROOT / each) for each in (".", "connectors", "extras", "spark_jobs"))
    environment = {**os.environ, **named, "PYTHONPATH": places}
    done = finished(sys.executable, "-c", WITHOUT.format(hidden=hidden), *command.split(), cwd=folder, env=environment)
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
