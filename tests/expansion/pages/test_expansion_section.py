"""Expansions in the report and in its JSON: complete, counted where they are cut, as of the run, safe with every
name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from expansion.support.rows import NOW, GrownTopic, rows_of, write_rows
from samples.dashboard_tables import HOSTILE

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.html.report import render_html
from acktrail_dashboard.summary import read_run, summarize, summary_json
from acktrail_dashboard.terminal import render_text

TROUBLE = GrownTopic(verdicts={"fraud-scoring": "broken", "billing": "safe"}, types={"fraud-scoring": "share"})
SETTLING = GrownTopic(topic="clicks", hours=2, is_settled=False, verdicts={"warehouse": "not_proven:no_fence"})


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Of a run that observed one share partition now."""
    found = Tables(TablesConfig(uri=str(tmp_path)))
    row = {"run_id": "r", "observed_at": NOW, "group_id": "g", "topic_id": "t", "partition": 0, "verdict": "match"}
    found.append("reconciliations", pa.Table.from_pylist([row], schema=TABLES["reconciliations"]))
    return found


def shown(tables: Tables) -> tuple[str, dict[str, Any], str]:
    """The report's section as HTML, the same in its JSON, and its line on a terminal."""
    rows, run_id = read_run(tables.config, None)
    html = render_html(rows, run_id, written_at=NOW).split('<section id="expansions"')[1].split("</section>", 1)[0]
    summary = summarize(rows, run_id)
    (line,) = (each for each in render_text(summary).splitlines() if each.startswith("Expansions  "))
    return html, json.loads(summary_json(summary))["branches"]["expansions"], line


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def test_what_the_audit_found_is_in_the_section(tables: Tables) -> None:
    """Every expansion, the worst first; verdicts with what proves them, fences, what is not certain."""
    write_rows(tables, rows_of(SETTLING, TROUBLE))
    html, found, line = shown(tables)
    assert [row["topic"] for row in found["expansions"]] == ["orders", "clicks"]
    for part in (
        "orders ■ order broken 2 → 4",
        "Partition 2 was begun while 58 records of partition 0",
        "begun 2026-11-22 22:25:05 UTC state partition 17, offset 90,215",
        "Not seen: work that was not committed",
        "partition 1 4,801 6,000 5,990 0 0",
        "Whether every producer knows the count",
    ):
        assert part in words(html), part
    assert "<a " not in html
    assert line == "Expansions    2; groups: 1 order broken, 1 not proven, 1 safe"
    broken = found["expansions"][0]["verdicts"][0]
    assert (broken["verdict"], broken["open_records"], broken["begun_state_offset"]) == ("broken", 58, 90_215)


def test_what_came_after_a_run_is_not_in_its_report(tables: Tables) -> None:
    """An expansion that was first seen later, with all rows about it."""
    write_rows(tables, rows_of(GrownTopic(hours=-1, verdicts={"billing": "broken"})))
    html, found, line = shown(tables)
    since = (NOW + timedelta(minutes=50)).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert found == {"reason": f"No topic gained partitions since {since}.", "expansions": []}
    assert found["reason"] in words(html)
    assert found["reason"] in line


def test_nothing_looked_at_is_not_nothing_found(tables: Tables) -> None:
    """Without a look, and without an audit, page, text and JSON say which command is missing."""
    for is_observed, word in ((False, "looked at"), (True, "audited")):
        if is_observed:
            tables.create("partition_observations")
        html, found, line = shown(tables)
        assert found["reason"] == f"No topic was {word} yet: run acktrail expand check TOPIC."
        assert found["reason"] in words(html)
        assert found["reason"] in line


def test_many_are_cut_and_counted(tables: Tables) -> None:
    """2,000 partitions and more topics than are shown in detail: the section stays small, what is left off is told."""
    many = GrownTopic(old_count=2_000, new_count=2_010, verdicts=dict.fromkeys("abcdef", "not_proven:not_begun"))
    more = (GrownTopic(topic=f"t{number}", verdicts={"a": "safe"}) for number in range(40))
    write_rows(tables, rows_of(many, *more))
    html, found, _ = shown(tables)
    assert len(html) < 600_000
    assert len(found["expansions"]) == 41
    assert html.count("<h3>") == 20
    assert "48 more verdicts not shown" in words(html)
    assert "1,988 more fences not shown" in words(html)


def test_hostile_names_are_text(tables: Tables) -> None:
    """Topics, groups and reasons by anybody's hand are shown with their hidden characters, and do nothing."""
    rows = rows_of(GrownTopic(topic=HOSTILE[6], verdicts=dict.fromkeys(HOSTILE, "broken"), new_count=3))
    for fence in rows["expansion_fences"]:
        fence["reason"] = HOSTILE[0]
    write_rows(tables, rows)
    html = shown(tables)[0]
    text = unescape(re.sub(r"</?(?:bdi|span|wbr)[^>]*>", "", html))
    assert all(printable(name) in text for name in HOSTILE)
    assert not any(bad in html for bad in ("<script", "<img", "\x1b", "\u202e"))


def test_nothing_known_of_a_row_is_unknown(tables: Tables) -> None:
    """Rows of another release, or of a damaged table, without a topic, a partition, a verdict: shown, never good."""
    names: Sequence[str] = ("partition_expansions", "expansion_fences", "expansion_verdicts")
    write_rows(tables, {name: [{"event_id": "e"}] for name in names})
    html, found, line = shown(tables)
    assert "unknown verdict" in words(html)
    assert 'class="badge ok"' not in html
    assert found["expansions"][0]["worst"] == "unknown"
    assert line.endswith("1 unknown verdict")
