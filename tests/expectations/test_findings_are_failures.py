"""What an audit of expansions opens as a finding is what breaks the expectation of the same rule on the same tables."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pytest
from samples.audited_ledger import audit, filled
from samples.expansion_world import BEGIN, CLUSTER, MINUTE, ExpansionRows, look, random_world
from samples.plain_audit import ms_of

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import OrderedGroups, TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.rules.catalogue import EXPANSION_RULES, EXPANSION_SUITE
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import newest_audit
from acktrail_expectations.expansion_gate import validate_observation
from acktrail_expectations.gx import suite_check
from acktrail_expectations.gx.suite_check import RowLabel, SuiteCheck, evaluate
from acktrail_expectations.results import RuleState
from acktrail_expectations.row_labels import OBSERVED_PARTITION
from acktrail_expectations.suites.frame_columns import frame_of
from acktrail_expectations.suites.ordering_audits import ORDERING_CHECKS, START_CHECKS, ordering_frame
from acktrail_expectations.suites.partition_expansions import FENCE_CHECKS, fences_frame
from acktrail_expectations.suites.partition_observations import (
    LEADER_EPOCH_CHECKS,
    TOPIC_OBSERVATION_CHECKS,
    leader_epochs_frame,
    topic_observations_frame,
)

pytestmark = pytest.mark.filterwarnings("default")

OF_AUDITS: Final = frozenset(
    {
        "partition_count_not_falling", "fence_not_expired", "fence_exact_le_high", "ordered_group_kept_order",
        "group_kept_order", "new_partition_records_not_skipped",
    }
)  # fmt: skip
"""The rules whose breach an audit opens."""
ORDERED: Final = ("g0",)
NOW: Final = BEGIN + dt.timedelta(days=1)
Broken = set[tuple[str, str]]


def _frames(tables: Tables) -> Iterator[tuple[tuple[SuiteCheck, ...], pd.DataFrame, Callable[[dict[str, Any]], str]]]:
    """Checks, the whole frame, and what an audit calls the subject of a row."""
    events = {row["event_id"]: row for row in tables.read("partition_expansions").to_pylist()}

    def expansion(row: dict[str, Any]) -> str:
        own = events[row["event_id"]]
        return f"{own['topic_id']}:{own['old_count']}-{own['new_count']}"

    def group(row: dict[str, Any]) -> str:
        return f"{row['group_id']}:{expansion(row)}"

    looks = tables.read("partition_observations")
    frame = topic_observations_frame(looks, run_id="", since=BEGIN - MINUTE, positions_at=None, now=NOW)
    yield TOPIC_OBSERVATION_CHECKS[:1], frame, lambda row: str(row["topic_id"])
    yield FENCE_CHECKS, fences_frame(tables.read("expansion_fences"), tables.read("ordering_audits")), expansion
    yield ORDERING_CHECKS, ordering_frame(tables.read("ordering_audits"), ordered=ORDERED), group
    yield START_CHECKS, frame_of(tables.read("start_audits")), group


def _breaches(tables: Tables) -> Broken:
    """Rule and subject of every row that breaks an expectation."""
    found: Broken = set()
    for checks, frame, subject in _frames(tables):
        label = RowLabel(tuple(frame.columns), lambda row, own=subject: json.dumps(own(row)))  # type: ignore[misc]
        for result in evaluate(EXPANSION_SUITE, checks, frame, label):
            assert result.error is None
            broken = (result.observed_value or "").split("; ") if result.unexpected_count else []
            assert len(broken) == (result.unexpected_count or 0)
            found |= {(result.expectation, json.loads(each)) for each in broken}
    return found


def _opened(tables: Tables) -> Broken:
    newest = newest_audit(tables)
    return {(row["rule"], row["subject"]) for row in tables.read("findings").to_pylist() if row["run_id"] == newest}


def _with_evidence(chance: Random, config: TablesConfig, world: ExpansionRows) -> None:
    """Exact fences of a key audit, some behind the high ones; state records that place share groups somewhere."""
    tables = Tables(config)
    fences = tables.read("expansion_fences")
    exact = [
        None if high is None or chance.random() < 0.5 else high + chance.choice((-1, 0, 1, 4))
        for high in fences["fence_high"].to_pylist()
    ]
    at = fences.column_names.index("fence_exact")
    tables.replace("expansion_fences", fences.set_column(at, "fence_exact", pa.array(exact, pa.int64())))
    shares = {
        (row["group_id"], row["topic_id"], row["partition"])
        for row in world.positions
        if row["group_type"] == "share" and row.get("partition") is not None
    }
    records = [
        {
            "cluster_id": CLUSTER, "group_id": group_id, "topic_id": topic_id, "partition": partition,
            "state_partition": 3, "offset": number, "record_type": "snapshot", "snapshot_epoch": 0,
            "start_offset": chance.randint(0, 6), "decode_status": "decoded", "timestamp_ms": ms_of(BEGIN),
        }
        for number, (group_id, topic_id, partition) in enumerate(sorted(shares))
    ]  # fmt: skip
    names = TABLES["state_records"].names
    tables.append("state_records", [{name: row.get(name) for name in names} for row in records])


def test_findings_are_what_breaks_the_expectations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any history of looks, the bad ones included: subject by subject, no more and no less. Elections that lose
    nothing break no expectation on epochs."""
    monkeypatch.setitem(suite_check.RESULT_FORMAT, "partial_unexpected_count", 1_000_000)
    seen: set[str] = set()
    for seed in range(8):
        chance = Random(seed)
        world = random_world(chance, runs=chance.randint(8, 40), is_bad=seed % 4 > 0)
        config = filled(tmp_path / str(seed), world)
        mapping = chance.choice((KeyMapping.MURMUR2, KeyMapping.NONE))
        audit(config, mapping, ordered=OrderedGroups(ORDERED))
        _with_evidence(chance, config, world)
        audit(config, mapping, ordered=OrderedGroups(ORDERED))
        tables = Tables(config)
        opened = _opened(tables)
        assert opened == {each for each in _breaches(tables) if each[0] in OF_AUDITS}, seed
        seen |= {rule for rule, _ in opened}
        if seed % 4 == 0:
            epochs = leader_epochs_frame(tables.read("partition_observations"), run_id="", since=BEGIN - MINUTE)
            results = evaluate(EXPANSION_SUITE, LEADER_EPOCH_CHECKS, epochs, OBSERVED_PARTITION)
            assert [each.success for each in results] == [True, True], seed
    assert seen == OF_AUDITS


def test_where_both_differ(tmp_path: Path) -> None:
    """A validation compares the looks since the one before, and an audit all that are left: the expectation of a count
    that fell holds in the next validation, and its finding stays open. What says that the tables themselves are in
    disorder breaks an expectation, and is no finding."""
    rows = ExpansionRows()
    for minute, ends in enumerate(([10, 10], [10, 10, 4], [10, 10])):
        look(rows, minute, ends, {0: 5})
    config = filled(tmp_path, rows)
    tables = Tables(config)
    audit(config, KeyMapping.NONE)
    first = validate_observation(tables, now=NOW)

    later = ExpansionRows()
    look(later, 3, [11, 11], {0: 6})
    for row in later.observations:
        row["leader_epoch"] = 2  # of 3 before
    for name, own in (("partition_observations", later.observations), ("group_positions", later.positions)):
        tables.append(name, [{column: row.get(column) for column in TABLES[name].names} for row in own])
    audit(config, KeyMapping.NONE)
    second = validate_observation(tables, now=NOW)

    broken = [
        {each.expectation for each in found.results if each.state is RuleState.FAILS} for found in (first, second)
    ]
    late = {"expansion_settles"}
    assert broken == [late | {"partition_count_not_falling"}, late | {"partition_leader_epoch_not_back"}]
    assert _opened(tables) == {("partition_count_not_falling", "t")}
    assert {rule.id for rule in EXPANSION_RULES} > OF_AUDITS
