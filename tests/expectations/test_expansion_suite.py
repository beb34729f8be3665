"""The suite of partition expansions: tables in order break no rule, each damage breaks its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from expectations.sample_damage import failing_by_damage
from samples.audited_ledger import audit
from samples.expansion_tables import LOOK, LOOKS, NOW, Rows, SampleExpansion, expansion_rows, run_id, write_rows

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, QualityGateFailed, UnknownName
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.rules.catalogue import EXPANSION_RULES, EXPANSION_SUITE, RULE_BY_ID
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail.tables.delta.store import Tables
from acktrail_expectations import expansion_gate
from acktrail_expectations.expansion_gate import (
    PARTITION_EXPANSION_CHECKS,
    pass_expansion_gate,
    validate_observation,
)
from acktrail_expectations.gx.suite_check import SuiteCheck
from acktrail_expectations.inputs import observation_slices
from acktrail_expectations.results import RuleState, ValidationSummary
from acktrail_expectations.suites.partition_observations import leader_epochs_frame

pytestmark = pytest.mark.filterwarnings("default")

TWO = (
    SampleExpansion(look=6, verdicts={"billing-workers": "safe", "audit": "not_started"}),
    SampleExpansion(topic="payments", topic_id="000001MCtK-X86swAAAAAA", new_count=4, verdicts={"ledger": "safe"}),
)
ORDERED = ("billing-*",)


@pytest.fixture
def store(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def validated(store: Tables, rows: Rows, ordered: tuple[str, ...] = ORDERED, **options: Any) -> ValidationSummary:
    write_rows(store, rows)
    return validate_observation(store, ordered=ordered, **{"now": NOW, **options})


def states(summary: ValidationSummary) -> dict[str, RuleState]:
    return {result.expectation: result.state for result in summary.results}


def failing(summary: ValidationSummary) -> set[str]:
    return {rule for rule, state in states(summary).items() if state is RuleState.FAILS}


def test_tables_in_order_break_no_rule(store: Tables) -> None:
    """Every rule has its result; those that have nothing to compare are not evaluated, all others hold."""
    summary = validated(store, expansion_rows(TWO))
    assert summary.run_id == f"expansions-{run_id(LOOKS - 1)}"
    assert [result.expectation for result in summary.results] == [check.rule for check in PARTITION_EXPANSION_CHECKS]
    assert {rule.id for rule in EXPANSION_RULES} == set(states(summary))
    assert {rule for rule, state in states(summary).items() if state is not RuleState.HOLDS} == {
        "expansion_events_chain", "expansion_settles", "fence_exact_ge_low", "fence_exact_le_high", "fence_not_expired",
    }  # fmt: skip
    assert all(result.reason for result in summary.not_evaluated)
    assert all(result.error is None for result in summary.results)
    pass_expansion_gate(summary)


def change(table: str, where: Callable[[dict[str, Any]], bool], **values: Any) -> Callable[[Rows], None]:
    """Sets columns of the first row that is meant."""

    def do(rows: Rows) -> None:
        next(row for row in rows[table] if where(row)).update(values)

    return do


def drop(table: str, where: Callable[[dict[str, Any]], bool]) -> Callable[[Rows], None]:
    def do(rows: Rows) -> None:
        rows[table].remove(next(row for row in rows[table] if where(row)))

    return do


def _newest(row: dict[str, Any]) -> bool:
    return bool(row["run_id"] == run_id(LOOKS - 1))


def _fell(rows: Rows) -> None:
    for row in [row for row in rows["partition_observations"] if _newest(row) and row["topic"] == "orders"]:
        row["partition_count"] = 2
        if row["partition"] == 2:
            rows["partition_observations"].remove(row)


def _doubled(rows: Rows) -> None:
    again = [dict(row) for row in rows["partition_observations"] if _newest(row)]
    for row in again:
        row["observed_at"] -= dt.timedelta(seconds=1)
    rows["partition_observations"] += again


def _future(rows: Rows) -> None:
    for table in ("partition_observations", "group_positions"):
        for row in (row for row in rows[table] if _newest(row)):
            row["observed_at"] += dt.timedelta(minutes=30)


def _groups_before_topics(rows: Rows) -> None:
    for row in (row for row in rows["group_positions"] if _newest(row)):
        row["observed_at"] -= dt.timedelta(minutes=1)


def _unchained(rows: Rows) -> None:
    first = rows["partition_expansions"][0]
    rows["partition_expansions"].append({**first, "event_id": "next", "sequence": 2, "old_count": 4, "new_count": 5})
    rows["expansion_fences"] += [{**rows["expansion_fences"][0], "event_id": "next", "partition": p} for p in range(4)]


def _violated(group: str) -> Callable[[Rows], None]:
    return change("ordering_audits", lambda row: row["group_id"] == group, verdict="violation")


def _unprovable(rows: Rows) -> None:
    """A group was between the fences of a source whose records are gone."""
    fence = rows["expansion_fences"][0]
    fence["log_start_offset"] = fence["fence_low"] + 1
    audit = next(row for row in rows["ordering_audits"] if row["group_id"] == "audit")
    audit |= {"verdict": "possible_violation", "source_event_id": fence["event_id"],
              "source_partition": fence["partition"], "source_before": fence["fence_low"] - 1,
              "source_at": fence["fence_low"] + 1, "fence_low": fence["fence_low"],
              "fence_high": fence["fence_high"]}  # fmt: skip


def _any(row: dict[str, Any]) -> bool:
    return True


DAMAGES: dict[str, tuple[str, Callable[[Rows], None]]] = {
    "a count that falls": ("partition_count_not_falling", _fell),
    "a partition without a row": (
        "observation_has_every_partition", drop("partition_observations", _newest)
    ),
    "two observations of one run": ("partition_observed_once", _doubled),
    "an observation in the future": ("observation_clock_not_back", _future),
    "groups read before topics": ("observation_clock_not_back", _groups_before_topics),
    "a leader epoch that falls": (
        "partition_leader_epoch_not_back", change("partition_observations", _newest, leader_epoch=0)
    ),
    "a log that lost records of an earlier epoch": (
        "epoch_end_ge_earlier_log_end", change("partition_observations", _newest, epoch_end_offset=0)
    ),
    "a chain with a hole": ("expansion_events_chain", _unchained),
    "a source without a fence": ("expansion_has_every_fence", drop("expansion_fences", _any)),
    "a fence twice": ("expansion_has_every_fence", change("expansion_fences", _any, partition=1)),
    "a fence of a partition that is no source": (
        "expansion_has_every_fence", change("expansion_fences", _any, partition=2)
    ),
    "a fence that ends before it begins": ("fence_low_le_high", change("expansion_fences", _any, fence_high=1)),
    "an exact fence below": ("fence_exact_ge_low", change("expansion_fences", _any, fence_exact=7)),
    "an exact fence above": ("fence_exact_le_high", change("expansion_fences", _any, fence_exact=90_000)),
    "an expired fence that could prove a verdict": ("fence_not_expired", _unprovable),
    "an expansion that does not settle": (
        "expansion_settles", change("partition_expansions", _any, status="settling")
    ),
    "a verdict of a later release": ("ordering_verdict_known", change("ordering_audits", _any, verdict="fine")),
    "no verdict": ("ordering_verdict_known", change("ordering_audits", _any, verdict=None)),
    "a group that needs order": ("ordered_group_kept_order", _violated("billing-workers")),
    "another group": ("group_kept_order", _violated("ledger")),
    "skipped records": (
        "new_partition_records_not_skipped",
        change("start_audits", lambda row: row["group_id"] == "ledger", skipped_records=12),
    ),
}  # fmt: skip


EXPIRED: dict[str, dict[str, Any]] = {
    "a proven verdict": {"verdict": "safe"},
    "a group that did not begin": {"verdict": "not_started"},
    "open for good": {"verdict": "indeterminate", "source_before": None, "source_at": 90_000},
    "another source": {"source_partition": 1},
}
"""What an audit says of a group where the expired fence of a source proves nothing: expiry is expected there."""


def _expired(changes: dict[str, Any]) -> Callable[[Rows], None]:
    def do(rows: Rows) -> None:
        _unprovable(rows)
        next(row for row in rows["ordering_audits"] if row["group_id"] == "audit").update(changes)

    return do


def test_each_damage_breaks_its_rule_alone(tmp_path: Path) -> None:
    """One rule each, and none where an expired fence proves nothing, out of one evaluation of all frames."""
    harms = {
        **{name: harm for name, (_, harm) in DAMAGES.items()},
        **{name: _expired(EXPIRED[name]) for name in EXPIRED},
    }
    frames: dict[str, tuple[tuple[SuiteCheck, ...], dict[str, pd.DataFrame]]] = {}
    for number, (name, harm) in enumerate(harms.items()):
        store, rows = Tables(TablesConfig(uri=str(tmp_path / str(number)))), expansion_rows(TWO)
        harm(rows)
        write_rows(store, rows)
        for checks, frame, _, _ in expansion_gate._frames(store, expansion_gate._chosen(store, None), ORDERED, NOW):
            frames.setdefault(checks[0].rule, (checks, {}))[1][name] = frame

    found: dict[str, set[str]] = {name: set() for name in harms}
    for checks, own in frames.values():
        for name, rules in failing_by_damage(EXPANSION_SUITE, checks, own).items():
            found[name] |= rules

    assert found == {**{name: {rule} for name, (rule, _) in DAMAGES.items()}, **{name: set() for name in EXPIRED}}


@pytest.mark.parametrize("damage", ["a count that falls", "skipped records"])
def test_a_critical_rule_stops_the_gate(store: Tables, damage: str) -> None:
    """Others do not."""
    rule, harm = DAMAGES[damage]
    rows = expansion_rows(TWO)
    harm(rows)
    summary = validated(store, rows)
    assert failing(summary) == {rule}
    if RULE_BY_ID[rule].severity is QualitySeverity.CRITICAL:
        with pytest.raises(QualityGateFailed, match=rule):
            pass_expansion_gate(summary)
    else:
        pass_expansion_gate(summary)


def test_every_rule_is_broken_by_a_damage() -> None:
    """None of the catalogue is left out."""
    assert {rule for rule, _ in DAMAGES.values()} == {rule.id for rule in EXPANSION_RULES}


def test_a_chain_without_a_hole_and_an_expansion_that_settles_hold(store: Tables) -> None:
    """The rules that had nothing to compare above: 2 to 3 to 4, a fence of a key audit, and a settling expansion that
    is not overdue."""
    rows = expansion_rows(
        [SampleExpansion(look=4), SampleExpansion(old_count=3, new_count=4, look=LOOKS - 1, sequence=2)]
    )
    kept = {
        (row["run_id"], row["partition"]): row
        for row in rows["partition_observations"]
        if row["partition_count"] == _count(row["run_id"])
    }
    rows["partition_observations"] = [*kept.values()]
    rows["expansion_fences"][0]["fence_exact"] = rows["expansion_fences"][0]["fence_low"] + 5
    summary = validated(store, rows)
    assert failing(summary) == set()
    assert {result.expectation for result in summary.not_evaluated} == {"group_kept_order", "fence_not_expired"}


def _count(run: str) -> int:
    """How many partitions the topic of two expansions had at a look."""
    return 2 if run < run_id(4) else 3 if run < run_id(LOOKS - 1) else 4


@pytest.mark.parametrize(
    ("table", "column", "rules"),
    [
        ("partition_observations", "partition_count", {"partition_count_not_falling"}),
        ("partition_observations", "partition_count", {"observation_has_every_partition"}),
        ("partition_observations", "leader_epoch", {"partition_leader_epoch_not_back"}),
        ("partition_observations", "epoch_end_offset", {"epoch_end_ge_earlier_log_end"}),
        ("partition_observations", "log_end_offset", {"epoch_end_ge_earlier_log_end"}),
        ("partition_expansions", "old_count", {"expansion_has_every_fence"}),
        ("expansion_fences", "fence_low", {"fence_low_le_high", "fence_not_expired"}),
        ("expansion_fences", "fence_high", {"fence_low_le_high"}),
        ("expansion_fences", "log_start_offset", {"fence_not_expired"}),
        ("start_audits", "skipped_records", {"new_partition_records_not_skipped"}),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_evaluated(store: Tables, table: str, column: str, rules: set[str]) -> None:
    """Null is neither right nor wrong."""
    rows = expansion_rows(TWO)
    for row in rows[table]:
        row[column] = None
    summary = validated(store, rows)
    assert failing(summary) == set()
    assert {rule for rule in rules if states(summary)[rule] is not RuleState.NOT_EVALUATED} == set()


@pytest.mark.parametrize("verdict", ["possible_violation", "indeterminate", "not_started", "unknown_fence"])
def test_what_is_not_proven_is_not_kept_order(store: Tables, verdict: str) -> None:
    """Only a proof counts: the rules of order have nothing to compare."""
    summary = validated(store, expansion_rows([SampleExpansion(verdicts={"billing-workers": verdict, "b": verdict})]))
    for rule in ("ordered_group_kept_order", "group_kept_order"):
        assert states(summary)[rule] is RuleState.NOT_EVALUATED
    assert failing(summary) == set()


def test_observations_alone_are_enough(store: Tables) -> None:
    """Before the first audit the other tables do not exist: what they have is not evaluated, with a reason each."""
    rows = expansion_rows()
    summary = validated(store, {"partition_observations": rows["partition_observations"]})
    assert failing(summary) == set()
    assert len(summary.holding) == 6
    assert {result.reason for result in summary.not_evaluated} == {
        "no expansion was found", "no expansion with a fence was found", "no group was audited",
        "no group was audited on a partition that was added",
    }  # fmt: skip


def test_without_an_observation_there_is_nothing_to_validate(store: Tables) -> None:
    """No table, and a run that no row names."""
    with pytest.raises(ConfigurationError, match="no topic was observed"):
        validate_observation(store)
    write_rows(store, expansion_rows())
    with pytest.raises(UnknownName, match="another"):
        validate_observation(store, "another")


def test_results_are_recorded_once_and_again_after_a_change(store: Tables) -> None:
    """As those of runs, with totals: repeated without a change they stay; another audit, or other groups that need
    order, are validated again."""
    first = validated(store, expansion_rows(TWO))
    assert validate_observation(store, ordered=ORDERED, now=NOW).results == first.results
    assert store.read("quality_results").num_rows == len(first.results)
    assert validate_observation(store, ordered=(), now=NOW).evaluated_at != first.evaluated_at
    worse = expansion_rows(TWO)
    _violated("billing-workers")(worse)
    write_rows(store, {"ordering_audits": worse["ordering_audits"]})
    with pytest.raises(QualityGateFailed, match="ordered_group_kept_order"):
        pass_expansion_gate(validate_observation(store, ordered=ORDERED))
    assert store.read("quality_totals")["suite"].to_pylist() == ["partition_expansions"] * 3
    assert sorted(store.read("quality_totals")["critical_fails"].to_pylist()) == [0, 0, 1]


def test_the_next_look_is_compared_with_the_one_before(store: Tables) -> None:
    """What was validated is not validated again, and is what the next look is compared with; a look that is older than
    the validated ones shows a clock that went back."""
    rows = expansion_rows(TWO)
    validated(store, rows)
    newest = [row for row in rows["partition_observations"] if _newest(row)]
    later = [{**row, "run_id": "later", "observed_at": row["observed_at"] + LOOK} for row in newest]
    one = {"partition_observations": later}
    summary = validated(store, one, now=NOW + LOOK)
    assert failing(summary) == set()
    counts = {result.expectation: result.element_count for result in summary.results}
    assert counts["partition_count_not_falling"] == 2
    assert counts["partition_leader_epoch_not_back"] == 7
    back = [{**row, "run_id": "back", "observed_at": row["observed_at"] - LOOK / 2} for row in newest]
    write_rows(store, {"partition_observations": back})
    summary = validate_observation(store, "back", now=NOW + LOOK)
    assert failing(summary) == {"observation_clock_not_back"}


def test_what_the_audit_finds_is_what_the_suite_compares(store: Tables) -> None:
    """The audit's own tables, of the looks alone: every rule holds but that about the group that was held back."""
    groups = {"billing-workers": "safe", "fraud-scoring": "violation"}
    rows = expansion_rows([SampleExpansion(verdicts=groups)])
    write_rows(store, {name: rows[name] for name in ("partition_observations", "group_positions")})
    audit(store.config, KeyMapping.MURMUR2, settle=dt.timedelta(minutes=7))
    summary = validate_observation(store, ordered=ORDERED, now=NOW)
    assert failing(summary) == {"group_kept_order"}
    named = [result.observed_value for result in summary.failed]
    assert [(text or "").split(" after ")[0] for text in named] == ["fraud-scoring/orders/2"]
    assert states(summary)["expansion_has_every_fence"] is RuleState.HOLDS


def test_slices_find_what_one_reading_finds(store: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger too large to be read at once: every observation is compared once, and with the one before it."""
    rows = expansion_rows(TWO)
    _fell(rows)
    whole = validated(store, rows)
    parts = Tables(TablesConfig(uri=store.config.uri + "-parts"))
    monkeypatch.setattr(observation_slices, "MOST_ROWS", 12)
    in_parts = validated(parts, rows)
    assert failing(in_parts) == {"partition_count_not_falling"}
    assert [(each.expectation, each.element_count, each.state) for each in in_parts.results] == [
        (each.expectation, each.element_count, each.state) for each in whole.results
    ]


def test_hostile_names_are_named_as_text(store: Tables) -> None:
    """The error of the gate has no line and no escape of a name's."""
    hostile = "\x1b[31mred\u202e\nline'; DROP TABLE x"
    rows = expansion_rows([SampleExpansion(topic=hostile[:9], verdicts={hostile: "violation"})])
    with pytest.raises(QualityGateFailed) as caught:
        pass_expansion_gate(validated(store, rows, ("*",)))
    assert all(line.isprintable() for line in str(caught.value.hint).split("\n"))


def test_epochs_are_compared_with_what_is_known_of_them() -> None:
    """R003-19: with the newest known epoch, also behind looks that could not ask. Where earlier epochs end is compared
    with the newest log end under an earlier leader, and not with what came under the same one, or one not known."""
    looks = [(5, 100), (5, 110), (None, 130), (6, 140), (6, 150), (None, None), (8, 160), (7, 170)]
    own = {"cluster_id": "c", "topic_id": "t", "topic": "t", "partition": 0, "partition_count": 1}
    rows = [
        {
            **own,
            "run_id": str(number),
            "observed_at": NOW + number * LOOK,
            "leader_epoch": leader,
            "log_end_offset": end,
        }
        for number, (leader, end) in enumerate(looks)
    ]
    names = [*rows[0], "epoch_end_offset"]
    table = pa.Table.from_pylist(rows, schema=pa.schema([TABLES["partition_observations"].field(n) for n in names]))
    frame = leader_epochs_frame(table, run_id="", since=NOW - LOOK)
    before, ends = (
        [None if pd.isna(each) else each for each in frame[name]] for name in ("previous_epoch", "earlier_end")
    )
    assert before == [None, 5, 5, 5, 6, 6, 6, 8]
    assert ends == [None, None, None, 110, 110, 110, 150, 150]
