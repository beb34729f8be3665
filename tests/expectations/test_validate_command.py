"""``acktrail run validate``: results on stdout, the verdict in the exit code; Great Expectations as its users know it:
suites, validation definitions, exported suites, Data Docs."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from expectations.sample_tables import RUN, changed, fill, reconciliations
from state_topics.coordinator_log import everyday, share_partition
from typer.testing import CliRunner, Result

from acktrail.cli.main import _failed
from acktrail.errors import AcktrailError, ConfigurationError, QualityGateFailed, UnknownName
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail_expectations.command import app
from acktrail_expectations.notebook import DocsNotMade, RunChecks, offline, open_run


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def raised(kind: type[AcktrailError], result: Result) -> AcktrailError:
    assert isinstance(result.exception, kind)
    return result.exception


def test_json_has_every_result(tmp_path: Path) -> None:
    """A program reads one object: the run, whether it passed, and a result for every expectation."""
    fill(tmp_path)

    result = run("--tables", str(tmp_path), "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["run_id"], told["passed"], told["recorded"]) == (0, RUN, True, True)
    assert len(told["results"]) == 82
    assert {"suite", "expectation", "severity", "state", "success", "unexpected_count"} <= told["results"][0].keys()


@pytest.mark.usefixtures("plain_engine")
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
    error = raised(QualityGateFailed, result)
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

    assert "run-1" in raised(UnknownName, run("--tables", str(tmp_path), "--run-id", "run-7")).hint


@pytest.mark.parametrize("arguments", [("--tables", "{folder}"), ()])
def test_no_tables_and_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    """Nothing to validate is an error with a hint what to do."""
    monkeypatch.delenv("ACKTRAIL_TABLES", raising=False)

    assert raised(ConfigurationError, run(*(argument.format(folder=tmp_path) for argument in arguments))).hint


HOSTILE = "<script>alert(1)</script>'; DROP TABLE x; --"


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> RunChecks:
    """A run with a hostile group, a critical failure and a warning; nothing is asked of the network."""
    life = everyday()
    life.initialize(share_partition(HOSTILE))
    verdicts = changed(reconciliations(life), -1, verdict="past_log_end")
    config = fill(
        tmp_path_factory.mktemp("run") / "tables", life, reconciliations=changed(verdicts, 0, verdict="unknown")
    )
    return open_run(config, RUN)


def test_suites_have_what_people_look_for(checks: RunChecks) -> None:
    """Every expectation has a severity, a description, notes, an owner and its sources; the context knows suites,
    and validation definitions by name."""
    suites = {suite.name: suite for suite in checks.context.suites.all()}
    assert suites.keys() == checks.suites.keys()
    for suite in suites.values():
        for expectation in suite.expectations:
            rule = RULE_BY_ID[expectation.meta["rule"]]
            assert (expectation.description, expectation.meta["owner"]) == (rule.title, "acktrail")
            assert expectation.meta["severity"] == rule.severity.value
            assert expectation.severity.value in {rule.severity.value, "warning"}
            assert rule.advice in expectation.notes[-1]
            assert expectation.meta["sources"] == list(rule.sources)

    outcomes = checks.validate()
    assert not outcomes["reconciliations"].success
    evaluated = outcomes["share_partition_states"].statistics["evaluated_expectations"]
    assert evaluated == len(suites["share_partition_states"].expectations)
    assert not checks.context.config.analytics_enabled


def test_data_docs_need_no_network_and_show_their_index(
    checks: RunChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building them asks no host; each page loads nothing from outside and forbids it; the index links every result;
    no page has a name out of the tables."""
    monkeypatch.setattr(socket.socket, "connect", refused)
    index = checks.build_data_docs(tmp_path / "docs")

    pages = {path: path.read_text("utf-8") for path in index.parent.rglob("*.html")}
    assert len(pages) >= len(checks.suites) + 1
    for text in pages.values():
        assert "Content-Security-Policy" in text
        assert "<script" not in text
        assert "DROP TABLE" not in text
        assert "<img" not in text
    links = pages[index].split('href="')[1:]
    assert len(links) == len(checks.suites)
    assert all((index.parent / link.split('"')[0].replace("%3A", ":")).exists() for link in links)
    assert pages[index].count("failed") >= 1


def refused(*_: Any) -> None:
    raise AssertionError("something was asked of the network")


def test_a_page_without_a_place_for_the_policy_is_an_error() -> None:
    """A page that a later release of Great Expectations makes differently is not written; what loads something goes,
    from wherever it is."""
    with pytest.raises(DocsNotMade):
        offline("<html><body>plain</body></html>")
    tags = '<script src="x"></script><script>y</script><link href="//a/x.css"><img src="data:x"><iframe src="b">'
    tags += '<SCRIPT SRC="//a/x">y</SCRIPT>'
    assert offline(f"<html><head></head><body>{tags}</body></html>").endswith("<body></body></html>")


def test_suites_are_exported_as_great_expectations_stores_them(tmp_path: Path) -> None:
    """One file a suite, the same each time, with the catalogue's texts; it reads as a suite again."""
    import great_expectations as gx

    config = fill(tmp_path / "tables")
    folder = tmp_path / "suites"
    shown = run("--tables", config.uri, "--export-suites", str(folder))

    assert shown.exit_code == 0, shown.output
    files = sorted(folder.glob("*.json"))
    assert [Path(line).name for line in sorted(shown.stdout.split())] == [file.name for file in files]
    assert {file.stem for file in files} >= {"state_records", "reconciliations", "reset_plan", "reset_result"}
    before = [file.read_bytes() for file in files]
    run("--tables", config.uri, "--export-suites", str(folder))
    assert [file.read_bytes() for file in files] == before
    for file in files:
        stored = json.loads(file.read_text("utf-8"))
        suite = gx.ExpectationSuite(**stored)
        assert suite.name == file.stem
        rules = [expectation.meta["rule"] for expectation in suite.expectations]
        assert rules == [each["meta"]["rule"] for each in stored["expectations"]]
    assert Tables(config).read("quality_results").num_rows == 0
