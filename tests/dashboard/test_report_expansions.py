"""Expansions in the report: complete, counted where they are cut, honest about what is not known, safe with every
name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import pyarrow as pa
import pytest
from samples.dashboard_tables import HOSTILE
from samples.expansion_tables import SampleExpansion

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.model.expansion.expansion_texts import NEVER_SEEN
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.html.report import render_html
from acktrail_dashboard.lists.expansion_parts import EXPANSIONS_DETAILED, ROWS_OF_EACH
from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.summary import read_run, summarize, summary_json
from acktrail_dashboard.terminal import render_text

Expand = Callable[[Sequence[SampleExpansion]], dict[str, pa.Table]]


def section(tables: RunTables, run_id: str) -> str:
    """The HTML of the report's section on expansions."""
    html = render_html(tables, run_id, written_at=datetime(2026, 11, 21, 5, tzinfo=UTC))
    return html.split('<section id="expansions"')[1].split("</section>", 1)[0]


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def table_of(html: str, caption: str) -> str:
    return next(part for part in html.split("<table ") if f"<caption>{caption}</caption>" in part)


def test_what_the_audit_found_is_in_the_section(sample: RunTables, run_id: str) -> None:
    """Every expansion, the worst first; each group's verdict with the readings it rests on; each fence with how it was
    found; skipped records; what is not certain, and what no look sees."""
    html = section(sample, run_id)
    for caption, named in {
        "Expansions of topics": ("orders", "clickstream", "invoices"),
        "Verdicts of groups": ("fraud-scoring", "search-indexer", "warehouse-sync", "billing-workers"),
    }.items():
        places = [table_of(html, caption).index(f"<bdi>{name}</bdi>") for name in named]
        assert places == sorted(places)
    assert "source 1 at 2,401, then 3,001" in words(table_of(html, "Verdicts of groups"))
    assert "skipped records 1 skipped records 312" in words(table_of(html, "Starts of groups"))
    fences = words(table_of(html, "Fences of the sources"))
    assert "partition 0 4,800 6,000 1,200 no key audit looks before and after bracketed" in fences
    assert "partition 0 10,800 unknown unknown no key audit look before unknown not observed since the settle" in fences
    for text in NEVER_SEEN:
        assert text in words(html)
    assert "nothing is proven to be safe. ( clickstream 30 → 40)" in words(html)


def test_counts_add_up(sample: RunTables, run_id: str) -> None:
    """Destinations by verdict are the audited destinations, of each expansion and of its groups; fences are all."""
    found = summarize(sample, run_id).expansions
    audited = Counter(sample.ordering_audits["event_id"].to_pylist())
    assert {row.event_id: sum(count for _, count in row.destinations) for row in found.expansions} == audited
    by_group: Counter[str] = Counter()
    for row in found.orders:
        by_group[row.event_id] += sum(count for _, count in row.destinations)
    assert by_group == audited
    assert len(found.fences) == sample.expansion_fences.num_rows
    assert sum(count for row in found.starts for _, count in row.partitions) == sample.start_audits.num_rows
    assert sum(row.skipped_records or 0 for row in found.starts) == 312
    assert sum(row.unknown_partitions for row in found.starts) == sum(row.unknown_starts for row in found.expansions)


def test_what_came_after_a_run_is_not_in_its_report(sample: RunTables, run_id: str, make_expansions: Expand) -> None:
    """An expansion that was first seen later, and all rows about it."""
    later = make_expansions([SampleExpansion()])
    seen = later["partition_expansions"]
    column = pa.array([each + timedelta(days=1) for each in seen["first_seen_new_at"].to_pylist()],
                      seen.schema.field("first_seen_new_at").type)  # fmt: skip
    later["partition_expansions"] = seen.set_column(
        seen.column_names.index("first_seen_new_at"), "first_seen_new_at", column
    ).set_column(seen.column_names.index("run_id"), "run_id", pa.array(["look"]))
    found = summarize(replace(sample, **later), run_id).expansions
    assert (found.expansions, found.fences, found.orders, found.starts) == ((), (), (), ())
    html = section(replace(sample, **later), run_id)
    assert words(html).endswith("No topic gained partitions.")


@pytest.mark.parametrize("is_observed", [False, True])
def test_nothing_observed_is_not_nothing_found(
    sample: RunTables, run_id: str, tmp_path: Path, is_observed: bool
) -> None:
    """Without a look, and without an audit, page, text and JSON say which command is missing."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    tables.append("reconciliations", sample.reconciliations)
    if is_observed:
        tables.create("partition_observations")
    rows, _ = read_run(tables.config, run_id)
    reason = f"run acktrail expand {'audit' if is_observed else 'observe'}"
    assert reason in words(section(rows, run_id))
    assert reason in render_text(summarize(rows, run_id))
    assert reason in json.loads(summary_json(summarize(rows, run_id)))["expansions"]["reason"]


def test_many_are_cut_and_counted(sample: RunTables, run_id: str, make_expansions: Expand) -> None:
    """2,000 partitions and more topics than are shown in detail: the section stays small, shown and counted rows are
    all."""
    groups = dict.fromkeys((f"group-{number}" for number in range(30)), "indeterminate")
    samples = [SampleExpansion(old_count=2_000, new_count=4_000, verdicts=groups, most_destinations=3)]
    samples += [
        SampleExpansion(topic=f"t-{number}", topic_id=f"{number:06d}MCtK-X86swAAAAAA", look=5) for number in range(40)
    ]
    html = section(replace(sample, **make_expansions(samples)), run_id)
    assert len(html) < 600_000
    assert f"{41 - EXPANSIONS_DETAILED} more expansions not shown" in words(html)
    assert f"{2_000 - ROWS_OF_EACH:,} more not shown" in words(table_of(html, "Fences of the sources"))
    assert f"{30 - ROWS_OF_EACH} more not shown" in words(table_of(html, "Verdicts of groups"))
    assert words(html).count("How keys are mapped") == 0
    assert table_of(html, "Expansions of topics").count('scope="row"') == 41


def test_hostile_names_are_text(sample: RunTables, run_id: str, make_expansions: Expand) -> None:
    """Topics, groups, verdicts and reasons by anybody's hand are shown with their hidden characters, and do nothing."""
    names = {HOSTILE[number]: "violation" for number in range(len(HOSTILE))}
    tables = make_expansions([SampleExpansion(topic=HOSTILE[6], verdicts=names)])
    fences = tables["expansion_fences"]
    reasons = pa.array([HOSTILE[0]] * fences.num_rows, pa.string())
    tables["expansion_fences"] = fences.set_column(fences.column_names.index("reason"), "reason", reasons)
    html = section(replace(sample, **tables), run_id)
    text = "".join(unescape(re.sub(r"</?(?:bdi|span|wbr)[^>]*>", "", html)))
    for name in HOSTILE:
        assert printable(name) in text
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_nothing_known_of_a_row_is_unknown(sample: RunTables, run_id: str) -> None:
    """Rows of another release, or of a damaged table, without a topic, a partition, a verdict: shown, never good."""
    row = {"event_id": "e"}
    tables = {
        name: pa.Table.from_pylist([row], schema=TABLES[name])
        for name in ("partition_expansions", "expansion_fences", "ordering_audits", "start_audits")
    }
    both = replace(sample, **tables, ordering_proofs=tables["ordering_audits"])
    html = section(both, run_id)
    assert "none given" in words(html)
    assert "partition unknown" in words(html)
    assert 'class="badge ok"' not in html
    json.loads(summary_json(summarize(both, run_id)))
