"""``acktrail run validate``: results on stdout, the verdict in the exit code; Great Expectations as its users know it:
suites, validation definitions, exported suites, Data Docs. Every check has a result, and what could not be evaluated is
no success."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import RUN, changed, cluster, fill, groups, logs, reconciliations
from hypothesis import given
from hypothesis import strategies as st
from state_topics.coordinator_log import TOPIC, everyday, share_partition
from typer.testing import CliRunner, Result

from acktrail.cli.main import _failed
from acktrail.errors import AcktrailError, ConfigurationError, MalformedFile, QualityGateFailed, UnknownName
from acktrail.model.rules.catalogue import Condition, QualitySeverity, rule_catalogue
from acktrail.replay.stored_offsets import stored_offsets
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.record_files import later_records
from acktrail_expectations import evaluation
from acktrail_expectations.command import app
from acktrail_expectations.data_context import DocsNotMade, RunChecks, load_suite, offline, open_run
from acktrail_expectations.evaluation import SuiteCheck, check_of, evaluate
from acktrail_expectations.frames.frame_columns import observed_cluster
from acktrail_expectations.rule_results import (
    QualityResult,
    RuleState,
    ValidationSummary,
    headline,
    merged,
    unevaluated_lines,
)
from acktrail_expectations.validation_input import advanced


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
    assert len(told["results"]) == 86
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
    assert total == f"run {RUN}: 80 of 86 expectations hold, 1 fail, {legal}, {open_}"
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
            rule = rule_catalogue().by_id[expectation.meta["rule"]]
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
    """One file a suite, the same each time, with the catalogue's texts; it reads as a suite again, or not at all."""
    config = fill(tmp_path / "tables")
    folder = tmp_path / "suites"
    shown = run("--tables", config.uri, "--export-suites", str(folder))

    assert shown.exit_code == 0, shown.output
    files = sorted(folder.glob("*.json"))
    assert {Path(line).name for line in shown.stdout.split()} == {file.name for file in folder.iterdir()}
    assert {file.stem for file in files} >= {"state_records", "reconciliations", "reset_plan", "reset_result"}
    before = [file.read_bytes() for file in files]
    run("--tables", config.uri, "--export-suites", str(folder))
    assert [file.read_bytes() for file in files] == before
    for file in files:
        suite = load_suite(file)
        assert suite.name == file.stem
        rules = [rule for rule in rule_catalogue().rules if file.stem in rule.suites]
        assert [each.meta["rule"] for each in suite.expectations] == [rule.id for rule in rules]
        assert [each.meta["presumes"] for each in suite.expectations] == [list(rule.presumes) for rule in rules]
    files[0].write_text(files[0].read_text("utf-8").replace('"type": "', '"type": "expect_nothing_', 1))
    with pytest.raises(MalformedFile, match=r"10 of 11 expectations could be made"):
        load_suite(files[0])
    assert Tables(config).read("quality_results").num_rows == 0


FRAME = pd.DataFrame({"a": pd.array([1, 2, None, 5], "Int64"), "b": pd.array([1, 3, 3, None], "Int64")})


def subject(row: Mapping[str, Any]) -> str:
    """Names a row."""
    return f"a={row['a']}"


def check(name: str, expect: str, where: str = "") -> SuiteCheck:
    """A rule that expects `expect`, as rules.toml has it."""
    return check_of(replace(rule_catalogue().rules[0], id=name, expect=Condition.parse(expect), where=where))


def only(check: SuiteCheck, frame: pd.DataFrame = FRAME) -> QualityResult:
    (result,) = evaluate("suite", [check], frame, subject)
    return result


def test_nothing_to_compare_is_not_evaluated() -> None:
    """A rule that compared no row neither holds nor fails, and says why."""
    rule = check("a_is_b", "a = b")
    apart, unknown, empty = (only(rule, frame) for frame in (FRAME.iloc[2:], FRAME.iloc[2:3], FRAME.iloc[:0]))

    for result in (apart, unknown, empty):
        assert (result.state, result.success) == (RuleState.NOT_EVALUATED, None)
        assert (result.element_count, result.unexpected_count) == (0, 0)
    assert apart.reason == "not known: a beside b, in any of 2 rows"
    assert unknown.reason == "not known: a, in any of 1 rows"
    assert empty.reason == "no row to compare"
    special = check("r", "a = b", where="recorded gap")
    assert only(special, FRAME.iloc[2:]).reason == "no recorded gap among 2 rows"


def test_an_expectation_that_raised_is_an_error_and_takes_no_other_with_it() -> None:
    """A missing column is no failure of the data and no success: it has an error and no counts. Rules on the same
    columns share what the engine computes of them, and nothing else."""
    checks = (check("gone", "a = no_such_column"), check("there", "a known"))

    gone, there = evaluate("suite", checks, FRAME, subject)

    assert not gone.success
    assert gone.error is not None
    assert "\n" not in gone.error
    assert (gone.element_count, gone.unexpected_count) == (None, None)
    assert (there.error, there.success, there.unexpected_count) == (None, False, 1)


def test_a_rule_without_a_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine says nothing of was not evaluated."""
    monkeypatch.setattr(evaluation, "_outcomes", lambda *_: {})

    result = only(check("one", "a = b"))

    assert (result.success, result.error) == (False, "the engine gave no result")


def test_few_rows_stand_for_many() -> None:
    """However many rows break a rule, three are named and all are counted."""
    frame = pd.DataFrame({"a": pd.array(range(500), "Int64"), "b": pd.array([-1] * 500, "Int64")})

    result = only(check("a_is_b", "a = b"), frame)

    assert (result.unexpected_count, result.observed_value) == (500, "a=0; a=1; a=2")


def result(**values: Any) -> QualityResult:
    return replace(QualityResult(suite="s", expectation="e", severity=QualitySeverity.CRITICAL, success=True), **values)


def test_parts_add_up() -> None:
    """Results on parts of a table are the result on the whole, in whatever order the parts come: counts add up, one
    failure fails, the first few rows are named, by the numbers in their names."""
    held = result(element_count=10, unexpected_count=0)
    failed = result(success=False, element_count=5, unexpected_count=4, observed_value="0/3; 0/10; 1/0")
    later = result(success=False, element_count=5, unexpected_count=2, observed_value="0/9; 2/0")
    other = result(expectation="f", element_count=1, unexpected_count=0)
    whole = result(success=False, element_count=20, unexpected_count=6, observed_value="0/3; 0/9; 0/10")

    assert merged((held, other, failed, later)) == (whole, other)
    assert merged((later, failed, other, held)) == (whole, other)


def test_parts_that_were_not_evaluated() -> None:
    """What could not be evaluated on one part was not evaluated; a part without rows takes nothing from the others."""
    error = result(success=False, error="no column")
    held = result(element_count=3, unexpected_count=0)
    nothing = result(success=None, element_count=0, unexpected_count=0, reason="none")

    assert merged((held, error)) == (error,)
    assert merged((nothing, held)) == merged((held, nothing)) == (held,)
    assert merged((nothing, nothing)) == (nothing,)


def test_what_was_not_evaluated_is_counted_and_explained() -> None:
    """It is in no count of what holds; each reason has one line, that with critical rules first. It stops no run, but a
    critical expectation that raised does: it vouches for nothing."""
    results = (
        result(expectation="a", severity=QualitySeverity.ERROR, success=None, reason="no end"),
        result(expectation="b", success=None, reason="no row"),
        result(expectation="c", severity=QualitySeverity.WARNING, success=None, reason="no row"),
        result(expectation="d", element_count=3),
        result(expectation="e", severity=QualitySeverity.ERROR, success=False, unexpected_count=1),
    )
    summary = ValidationSummary(cluster_id=None, run_id="r", results=results)

    assert headline(summary) == "1 of 5 expectations hold, 1 fail, 3 not evaluated (1 of them critical)"
    assert unevaluated_lines(summary) == (
        "s: 2 not evaluated, 1 of them critical: no row",
        "s: 1 not evaluated, 0 of them critical: no end",
    )
    assert summary.critical_failures == ()
    raised = result(success=False, error="no column")
    assert ValidationSummary(cluster_id=None, run_id="r", results=(*results, raised)).critical_failures == (raised,)


def test_archiving_comes_with_the_dead_letter_queue() -> None:
    """A release that configures dead letter queues may archive in two steps; unknown releases are not judged."""
    for name in ("share.delivery.count.limit", "share.auto.offset.reset"):
        assert not cluster(configs={name: "5"}).allows_archiving
    for configs in ({"errors.deadletterqueue.topic.name": ""}, {}):
        assert cluster(configs=configs).allows_archiving


def test_a_group_s_own_limit_counts() -> None:
    """The limit that the cluster reports, the higher one if it changed, else the broker's default."""
    observed = pa.concat_tables(
        [groups({"share.delivery.count.limit": "3"}), groups({"share.delivery.count.limit": "8"}), groups(None)]
    )

    found = observed_cluster(observed, logs())

    assert [found.delivery_count_limit(group) for group in ("orders", "others", None)] == [8, 5, 5]
    assert cluster(configs={"share.delivery.count.limit": "many"}).delivery_count_limit("orders") == 5


def test_logs_are_as_the_later_sample_says() -> None:
    """A log end only grows: the greater of the two samples is the newer one; the state topic has a row a partition."""
    observed = cluster(offsets=logs(ends={(TOPIC, 0): (3, 100)}))

    assert [row for row in observed.logs.to_pylist() if row["topic_id"] == TOPIC] == [
        {"topic_id": TOPIC, "partition": 0, "log_start_offset": 3, "log_end_offset": 100}
    ]
    assert observed.state_partition_count == 3


addresses = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=80)
positions = st.dictionaries(st.integers(0, 3), st.integers(0, 70))


def table(pairs: set[tuple[int, int]]) -> pa.Table:
    rows = [{"state_partition": partition, "offset": offset} for partition, offset in sorted(pairs, reverse=True)]
    return pa.Table.from_pylist(rows, schema=pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())]))


@given(addresses, positions)
def test_positions_only_move_forward(stored: set[tuple[int, int]], since: dict[int, int]) -> None:
    """After a validation the position is one past the last record, and never lower than before."""
    ends = advanced(stored_offsets(table(stored).to_batches(), {}).ends(), since)

    for partition in {p for p, _ in stored} | since.keys():
        highest = max((offset for p, offset in stored if p == partition), default=-1)
        assert ends[partition] == max(highest + 1, since.get(partition, 0))


@given(st.lists(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=20), max_size=90), positions)
def test_stored_offsets_are_counted_once(pieces: list[set[tuple[int, int]]], begin: dict[int, int]) -> None:
    """Addresses may come in any pieces and order, also twice: each offset of a range counts once, and a range that
    reaches below what was looked at has no count."""
    stored = {(p, o) for piece in pieces for p, o in piece}
    found = stored_offsets((batch for piece in pieces for batch in table(piece).to_batches()), begin)

    for partition, first, last in ((0, 0, 60), (1, 13, 14), (2, 30, 29), (3, 59, 80)):
        held = sum(p == partition and first <= o <= last for p, o in stored)
        assert found.count(partition, first, last) == (None if first < begin.get(partition, 0) else held)
    assert sum(len(runs.first) for runs in found.runs.values()) == sum((p, o - 1) not in stored for p, o in stored)


def test_a_log_without_holes_is_one_run() -> None:
    """What is kept of the addresses does not follow the records."""
    batches = (table({(0, o) for o in range(at, at + 100)}).to_batches()[0] for at in range(0, 20_000, 100))

    (runs,) = stored_offsets(batches, {}).runs.values()

    assert (runs.first.tolist(), runs.end.tolist()) == ([0], [20_000])


@given(addresses, positions)
def test_a_state_partition_without_a_position_is_read_whole(
    stored: set[tuple[int, int]], since: dict[int, int]
) -> None:
    """No state partition is left out because no observation names it."""
    rows = table(stored).filter(later_records(since))

    assert rows.equals(table({(p, offset) for p, offset in stored if offset >= since.get(p, 0)}))


def test_a_range_that_is_only_a_gap_counts_by_its_gap() -> None:
    """An offset in any of the columns is enough."""
    rows = pa.table({"state_partition": [0, 0], "last_offset": pa.array([None, 3], pa.int64()), "gap_last": [9, None]})

    assert rows.filter(later_records({0: 5}, "last_offset", "gap_last")).num_rows == 1
    assert rows.filter(pc.field("state_partition") == 0).num_rows == 2
