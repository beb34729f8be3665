"""The suite of expansions: tables in order break no rule, each damage breaks its own, and proofs alone count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from expansion.support.rows import NOW, Rows, write_rows
from expansion.support.suite_rows import LOOK, LOOKS, run_id, suite_rows

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, QualityGateFailed, UnknownName
from acktrail.model.rules.catalogue import BRANCH_RULES
from acktrail.tables.delta.store import Tables
from acktrail_expansion.quality import expansion_gate
from acktrail_expansion.quality.expansion_gate import check_expansions, pass_expansion_gate
from acktrail_expansion.quality.expansion_suite import SUITES, look_frame
from acktrail_expectations.notebook import export_suites
from acktrail_expectations.results import RuleState, ValidationSummary

pytestmark = pytest.mark.filterwarnings("default")

ORDERED = ("billing-*",)
CALM = {"billing-workers": "safe", "audit": "not_proven:not_begun"}


@pytest.fixture
def store(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def checked(store: Tables, rows: Rows, ordered: tuple[str, ...] = ORDERED, **options: Any) -> ValidationSummary:
    write_rows(store, rows)
    return check_expansions(store, ordered=ordered, **{"now": NOW, **options})


def states(summary: ValidationSummary) -> dict[str, RuleState]:
    assert [result.error for result in summary.results if result.error] == []
    return {result.expectation: result.state for result in summary.results}


def compared(summary: ValidationSummary, rule: str) -> int | None:
    return next(result.element_count for result in summary.results if result.expectation == rule)


def failing(summary: ValidationSummary) -> set[str]:
    return {rule for rule, state in states(summary).items() if state is RuleState.FAILS}


def test_tables_in_order_break_no_rule(store: Tables) -> None:
    """Every rule of the branch has its result; those that have nothing to compare are not evaluated."""
    summary = checked(store, suite_rows(CALM))

    assert summary.run_id == f"expansions-{run_id(LOOKS - 1)}"
    assert states(summary).keys() == BRANCH_RULES.keys()
    assert len(BRANCH_RULES) <= 8
    others = {rule: state for rule, state in states(summary).items() if state is not RuleState.HOLDS}
    assert others == dict.fromkeys(("expansion_settles", "group_kept_order"), RuleState.NOT_EVALUATED)
    assert all(result.reason for result in summary.not_evaluated)
    pass_expansion_gate(summary)


NEWEST = {"run_id": run_id(LOOKS - 1), "topic": "orders"}
LOOKS_AT, OF_ORDERS = "partition_observations", {"new_count": 3}
LOST = {"leader_epoch": 2, "epoch_end_offset": 999}
DAMAGES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "a count that falls": ("partition_count_not_falling", LOOKS_AT, NEWEST, {"partition_count": 2}),
    "a log that lost records": ("log_kept_records", LOOKS_AT, {**NEWEST, "partition": 1}, LOST),
    "a fence that ends before it begins": (
        "fence_low_le_high",
        "expansion_fences",
        {"partition": 1},
        {"fence_high": 1},
    ),
    "old metadata": ("settle_time_long_enough", "expansion_fences", {"late_records": 0}, {"late_records": 2}),
    "no look for long": ("expansion_settles", "partition_expansions", OF_ORDERS, {"status": "settling"}),
    "no look that shows every broker": (
        *("expansion_settles", "partition_expansions", OF_ORDERS, {"status": "settling", "settles_at": None}),
    ),
    "an ordered group": (
        *("ordered_group_kept_order", "expansion_verdicts", {"group_id": "billing-workers"}, {"verdict": "broken"}),
    ),
    "another group": ("group_kept_order", "expansion_verdicts", {"group_id": "audit"}, {"verdict": "broken"}),
    "skipped records": ("first_records_delivered", "expansion_verdicts", {"partition": 3}, {"skipped_records": 12}),
    "skipped": ("first_records_delivered", "expansion_verdicts", {"group_id": "audit"}, {"verdict": "skipped"}),
}
"""The rule that breaks, the table, which of its rows, and what is changed in them."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_breaks_its_rule_alone(store: Tables, damage: str) -> None:
    """Of critical rules the gate stops, and only of those."""
    rule, table, of, change = DAMAGES[damage]
    rows = suite_rows(CALM)
    for row in rows[table]:
        if of.items() <= {name: row.get(name) for name in of}.items():
            row.update(change)
    summary = checked(store, rows)

    assert failing(summary) == {rule}
    assert [result.observed_value for result in summary.failed if not result.observed_value] == []
    if summary.critical_failures:
        with pytest.raises(QualityGateFailed, match=rule):
            pass_expansion_gate(summary)
    else:
        pass_expansion_gate(summary)


def test_every_rule_is_broken_by_a_damage() -> None:
    """None is left out."""
    assert {rule for rule, *_ in DAMAGES.values()} == BRANCH_RULES.keys()


def test_an_expansion_that_settles_is_in_time(store: Tables) -> None:
    """Up to twice its settle time."""
    rows = suite_rows(CALM)
    for row in rows["partition_expansions"]:
        row.update(status="settling", settles_at=NOW - LOOK / 2)

    assert states(checked(store, rows))["expansion_settles"] is RuleState.HOLDS


@pytest.mark.parametrize(
    ("table", "column", "rule"),
    [
        ("partition_observations", "partition_count", "partition_count_not_falling"),
        ("partition_observations", "leader_epoch", "log_kept_records"),
        ("partition_observations", "epoch_end_offset", "log_kept_records"),
        ("partition_observations", "log_end_offset", "log_kept_records"),
        ("expansion_fences", "fence_low", "fence_low_le_high"),
        ("expansion_fences", "fence_high", "fence_low_le_high"),
        ("expansion_fences", "late_records", "settle_time_long_enough"),
        ("expansion_verdicts", "skipped_records", "first_records_delivered"),
        ("expansion_verdicts", "verdict", "ordered_group_kept_order"),
    ],
)
def test_what_is_not_known_is_not_evaluated(store: Tables, table: str, column: str, rule: str) -> None:
    """Null is neither right nor wrong."""
    rows = suite_rows(CALM)
    for row in rows[table]:
        row[column] = None
    summary = checked(store, rows)

    assert failing(summary) == set()
    assert states(summary)[rule] is RuleState.NOT_EVALUATED


@pytest.mark.parametrize("verdict", ["not_proven", "skipped", "of a later release"])
def test_what_is_not_proven_is_not_kept_order(store: Tables, verdict: str) -> None:
    """Only a proof counts: the rules of order have nothing to compare."""
    found = states(checked(store, suite_rows({"billing-workers": verdict, "audit": verdict})))

    assert {found[rule] for rule in ("ordered_group_kept_order", "group_kept_order")} == {RuleState.NOT_EVALUATED}


def test_looks_alone_are_enough(store: Tables) -> None:
    """Before the first audit the other tables do not exist: their rules are not evaluated, with a reason each."""
    with pytest.raises(ConfigurationError, match="no topic was looked at"):
        check_expansions(store)
    summary = checked(store, {"partition_observations": suite_rows(CALM)["partition_observations"]})

    assert {result.expectation for result in summary.holding} == {"partition_count_not_falling", "log_kept_records"}
    assert {result.reason for result in summary.not_evaluated} == {
        *("no expansion has a fence", "no expansion was found", "no group was audited"),
    }
    with pytest.raises(UnknownName, match="another"):
        check_expansions(store, "another")


def test_results_are_recorded_once_and_again_after_a_change(store: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of runs, with totals: another audit, or other groups that need order, are validated again; those are
    ACKTRAIL_ORDERED_GROUPS where none are given."""
    first = checked(store, suite_rows(CALM))
    assert check_expansions(store, ordered=ORDERED, now=NOW).results == first.results
    assert store.read("quality_results").num_rows == len(first.results)
    assert check_expansions(store, now=NOW).evaluated_at != first.evaluated_at
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", *ORDERED)
    write_rows(store, {"expansion_verdicts": suite_rows({"billing-x": "broken"})["expansion_verdicts"]})
    with pytest.raises(QualityGateFailed, match="ordered_group_kept_order"):
        pass_expansion_gate(check_expansions(store, now=NOW))
    totals = store.read("quality_totals")
    assert totals["suite"].to_pylist() == [*SUITES] * 3
    assert sorted(totals["critical_fails"].to_pylist()) == [0, 0, 1]


def test_the_next_look_is_compared_with_the_one_before(store: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was validated is not validated again; of very many rows the newest are read."""
    rows = suite_rows(CALM)
    first = checked(store, rows)
    newest_rows = [row for row in rows["partition_observations"] if row["run_id"] == run_id(LOOKS - 1)]
    later = [{**row, "run_id": "later", "observed_at": row["observed_at"] + LOOK} for row in newest_rows]
    second = checked(store, {"partition_observations": later})
    monkeypatch.setattr(expansion_gate, "MOST_ROWS", 15)
    bounded = checked(Tables(TablesConfig(uri=store.config.uri + "-bounded")), rows)

    assert [compared(each, "partition_count_not_falling") for each in (first, second, bounded)] == [22, 2, 2]
    assert [compared(each, "log_kept_records") for each in (first, second)] == [2 * 2 * 8, 4]


def test_hostile_names_are_named_as_text(store: Tables) -> None:
    """The error of the gate has no line and no escape of a name's."""
    hostile = "\x1b[31mred\u202e\nline'; DROP TABLE x"
    with pytest.raises(QualityGateFailed) as caught:
        pass_expansion_gate(checked(store, suite_rows({hostile: "broken"}, hostile), ("*",)))

    assert all(line.isprintable() for line in str(caught.value.hint).split("\n"))


def test_epochs_are_compared_with_what_is_known_of_them() -> None:
    """R003-19: where earlier epochs end is compared with the newest log end under an earlier leader, and not with what
    came under the same one, or one not known."""
    looks = [(5, 100), (5, 110), (None, 130), (6, 140), (6, 150), (None, None), (8, 160), (7, 170)]
    own = {"topic_id": "t", "topic": "t", "partition": 0, "partition_count": 1, "epoch_end_offset": None}
    rows = [
        {**own, "run_id": str(n), "observed_at": NOW + n * LOOK, "leader_epoch": leader, "log_end_offset": end}
        for n, (leader, end) in enumerate(looks)
    ]
    schema = pa.schema([TABLES["partition_observations"].field(name) for name in rows[0]])
    frame = look_frame(pa.Table.from_pylist(rows, schema=schema), run_id="", since=NOW - LOOK)

    ends = [None if pd.isna(each) else each for each in frame["earlier_end"]]
    assert ends == [None, None, None, 110, 110, 110, 150, 150]


def test_the_suite_is_exported_with_those_of_runs(tmp_path: Path) -> None:
    """As Great Expectations stores it, with acktrail's severities."""
    (file,) = [file for file in export_suites(tmp_path) if file.stem in SUITES]
    rules = {each["meta"]["rule"] for each in json.loads(file.read_text("utf-8"))["expectations"]}

    assert rules == BRANCH_RULES.keys()
