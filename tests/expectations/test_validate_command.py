"""``acktrail run validate``: results on stdout, the verdict in the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from expectations.sample_tables import RUN, changed, everyday, fill, reconciliations
from typer.testing import CliRunner, Result

from acktrail.cli.main import _failed
from acktrail.errors import AcktrailError, ConfigurationError, QualityGateFailed, UnknownName
from acktrail_expectations.command import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def raised(result: Result) -> AcktrailError:
    assert isinstance(result.exception, AcktrailError)
    return result.exception


def test_json_has_every_result(tmp_path: Path) -> None:
    """A program reads one object: the run, whether it passed, and a result for every expectation."""
    fill(tmp_path)

    result = run("--tables", str(tmp_path), "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["run_id"], told["passed"], told["recorded"]) == (0, RUN, True, True)
    assert len(told["results"]) == 82
    assert {"suite", "expectation", "severity", "state", "success", "unexpected_count"} <= told["results"][0].keys()


def test_results_are_shown_before_the_gate_closes(tmp_path: Path) -> None:
    """A critical failure: the table of expectations is on stdout, the error says which one and where to look."""
    life = everyday()
    fill(tmp_path, life, reconciliations=changed(reconciliations(life), 0, verdict="durable_ahead"))

    result = run("--tables", str(tmp_path))

    failed = [line.split() for line in result.stdout.splitlines() if re.search(r" (fails|noted)  ", line)]
    assert [line[:6] for line in failed] == [
        ["share_partition_states", "terminal_prefix_absorbed", "info", "noted", "3", "2"],
        ["reconciliations", "durable_ahead", "critical", "fails", "4", "1"],
    ]
    explained, total = result.stdout.splitlines()[-3:-1], result.stdout.splitlines()[-1]
    assert any(line.startswith("export_ranges: 1 not evaluated, 1 of them critical: no re") for line in explained)
    legal, open_ = "1 noted for information", "4 not evaluated (4 of them critical)"
    assert total == f"run {RUN}: 76 of 82 expectations hold, 1 fail, {legal}, {open_}"
    error = raised(result)
    assert isinstance(error, QualityGateFailed)
    assert error.exit_code == 6
    assert "acktrail run validate --run-id run-1" in error.hint


def test_many_failures_are_one_short_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line counts them, names the first, and says where to read more; logs have the advice on each."""
    rules = [f"rule_number_{number}" for number in range(12)]
    error = QualityGateFailed([("reconciliations", rule, 3) for rule in rules], hint="see docs\n" + "advice " * 300)
    assert _failed(error, []) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "acktrail: 12 critical expectation(s) failed: reconciliations: rule_number_0 (3 unexpected); reconciliations: "
        "rule_number_1 (3 unexpected); reconciliations: rule_number_2 (3 unexpected); and 9 more (see docs)"
    )


def test_an_unknown_run_is_named_with_the_nearest(tmp_path: Path) -> None:
    """A run id that no table knows is an error, not an empty success."""
    fill(tmp_path)

    error = raised(run("--tables", str(tmp_path), "--run-id", "run-7"))

    assert isinstance(error, UnknownName)
    assert "run-1" in error.hint


@pytest.mark.parametrize("arguments", [("--tables", "{folder}"), ()])
def test_no_tables_and_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    """Nothing to validate is an error with a hint what to do."""
    monkeypatch.delenv("ACKTRAIL_TABLES", raising=False)

    error = raised(run(*(argument.format(folder=tmp_path) for argument in arguments)))

    assert isinstance(error, ConfigurationError)
    assert error.hint
