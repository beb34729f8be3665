"""What an audit opens as a finding is what breaks the expectation of the same rule on the same tables."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest
from expansion.support.rows import CLUSTER, NOW, write_rows
from expansion.support.suite_rows import ORDERS, PAY, suite_rows

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail.tables.health.open_findings import open_findings
from acktrail.tables.open_runs import open_runs
from acktrail_expansion.quality.expansion_findings import write_findings
from acktrail_expansion.quality.expansion_gate import check_expansions
from acktrail_expansion.settings import OrderedGroups

pytestmark = pytest.mark.filterwarnings("default")

FELL: Final = {ORDERS.topic_id: (ORDERS.topic, "from 3 to 2 partitions")}
OF_TABLES: Final = frozenset(
    {"settle_time_long_enough", "ordered_group_kept_order", "group_kept_order", "first_records_delivered"}
)
"""The rules whose breach the tables of an audit show; looks that fell are handed over."""


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def opened(tables: Tables, *ordered: str, seen_us: int = 1, **fallen: tuple[str, str]) -> set[tuple[str, str]]:
    """Rule and subject of what is open after an audit."""
    write_findings(tables, CLUSTER, seen_us, ordered=OrderedGroups(ordered), fallen=fallen)
    found = open_findings(tables, open_runs(tables))
    assert len({(each.rule, each.subject) for each in found}) == len(found)
    return {(each.rule, each.subject) for each in found}


def test_findings_are_what_breaks_the_expectations(tables: Tables) -> None:
    """On any verdicts and fences: rule by rule, no more and no less."""
    seen: set[str] = set()
    for seed in range(12):
        chance, rows = Random(seed), suite_rows(dict.fromkeys(("billing", "audit", "b"), "safe"))
        for row in rows["expansion_verdicts"]:
            verdict = chance.choice(["broken", *["safe", "not_proven", "skipped"] * (seed % 3)])
            row.update(verdict=verdict, skipped_records=chance.choice([0, 0, None, seed]))
        for row in rows["expansion_fences"]:
            row["late_records"] = chance.choice([None, 0, 0, seed % 2])
        write_rows(tables, rows)
        found = {rule for rule, _ in opened(tables, "b*", seen_us=seed)}
        broken = {result.expectation for result in check_expansions(tables, ordered=["b*"], now=NOW).failed}
        assert found == broken & OF_TABLES, seed
        seen |= found

    assert seen == OF_TABLES


def test_each_topic_expansion_or_group_in_one_is_one_finding(tables: Tables) -> None:
    """With its numbers in words; an audit that does not find it any more closes it."""
    rows = suite_rows({"g": "broken"}, skipped_records=5)
    rows["expansion_fences"][1]["late_records"] = 2
    write_rows(tables, rows)
    orders, pay = f"{ORDERS.topic_id}:2-3", f"{PAY.topic_id}:2-4"
    assert opened(tables, **FELL) == {
        *(("partition_count_not_falling", ORDERS.topic_id), ("settle_time_long_enough", orders)),
        *((rule, f"g:{own}") for rule in ("group_kept_order", "first_records_delivered") for own in (orders, pay)),
    }
    details = {(row["rule"], row["subject"]): row["detail"] for row in tables.rows("findings")}
    assert details["settle_time_long_enough", orders] == (
        "expansion from 2 to 3 partitions: 2 records of producers that used the old count after the settle time, "
        "in 1 partition, first in 1"
    )
    assert details["group_kept_order", f"g:{pay}"].endswith(
        "Partition 2 was begun while 58 records of partition 0 below offset 4,800 were open, the first at offset "
        "4,711: shown by commits. It is so in 2 partitions."
    )
    write_rows(tables, suite_rows({"g": "safe"}))
    assert opened(tables) == set()
