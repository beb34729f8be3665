"""The page of expansions and the report's section: the worst first, what proves each verdict, what is not certain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from drivers.axe import CONTRAST, axe_violations, show_as
from drivers.browser import CHROMIUM, browsing
from extras.expansion.support.rows import NOW, SETTLING, STRANGE, TROUBLE, GrownTopic, Rows, rows_of, write_rows
from samples.dashboard_tables import HOSTILE
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail.text_tables import printable
from acktrail.view.run_summary import summarize, summary_json
from acktrail_dashboard.report import read_run, render_html, render_text
from acktrail_dashboard.web.application import create_app
from acktrail_expansion.shown_expansions import REASONS

WELL = GrownTopic(topic="payments", hours=50, verdicts={"billing": "safe"})
JUDGED = ("partition_expansions", "expansion_fences", "expansion_verdicts")
PAGES = ("expansions", *(f"expansions?event={each.event_id}" for each in (TROUBLE, SETTLING, STRANGE)))


def stored(root: Path, rows: Rows) -> Tables:
    """Tables with `rows`, and a run that observed one share partition now."""
    tables = Tables(TablesConfig(uri=str(root)))
    run = {"run_id": "r", "observed_at": NOW, "group_id": "g", "topic_id": "t", "partition": 0, "verdict": "match"}
    write_rows(tables, {"reconciliations": [run], **rows})
    return tables


@contextmanager
def served(tables: Tables) -> Iterator[str]:
    with web_server(create_app(tables.config, clock=lambda: NOW)) as url:
        yield url


def get(url: str, path: str) -> tuple[int, str]:
    """Status and HTML of a page."""
    answer = httpx.get(url + path, timeout=60, trust_env=False)
    return answer.status_code, answer.text


def reported(tables: Tables) -> tuple[str, dict[str, Any], str]:
    """The report's section as HTML, the same in its JSON, and its line on a terminal."""
    rows, run_id = read_run(tables.config, None)
    html = render_html(rows, run_id, written_at=NOW).split('<section id="expansions"')[1].split("</section>", 1)[0]
    summary = summarize(rows, run_id)
    (line,) = (each for each in render_text(summary).splitlines() if each.startswith("Expansions  "))
    return html, json.loads(summary_json(summary))["branches"]["expansions"], line


def words(html: str) -> str:
    """HTML without its tags; those inside of a name leave no space."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?(?:bdi|span|wbr)[^>]*>", "", html))).split())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Four expansions: one with each verdict, one that is settling, one that is well, one with hostile names."""
    return stored(tmp_path_factory.mktemp("expansions"), rows_of(WELL, SETTLING, TROUBLE, STRANGE))


@pytest.fixture(scope="module")
def site(tables: Tables) -> Iterator[str]:
    with served(tables) as url:
        yield url


def test_the_worst_expansion_is_first(tables: Tables, site: str) -> None:
    """On the page, where each leads to its own, and in the report; the first page counts groups in trouble."""
    status, page = get(site, "expansions")
    found = [each.event_id for each in (TROUBLE, SETTLING, STRANGE, WELL)]
    assert (status, re.findall(r"event=(\w+)", page)) == (200, found)
    assert "■1 order broken, 1 first records skipped, 1 not proven, 2 safe 2 → 4" in words(page)
    assert "2 groups may have got records of one key out of order" in words(get(site, "")[1])
    _, rows, line = reported(tables)
    assert [row["event_id"] for row in rows["expansions"]] == found
    assert line.endswith(f"4; groups: 1 order broken, 1 first records skipped, 2 not proven, {3 + len(HOSTILE)} safe")
    broken = rows["expansions"][0]["verdicts"][0]
    assert (broken["verdict"], broken["open_records"], broken["begun_state_offset"]) == ("broken", 58, 90_215)
    assert get(site, "expansions?event=0123")[0] == 404


def test_an_expansion_has_what_proves_its_verdicts(tables: Tables, site: str) -> None:
    """What was open, the state records that show it, keys by digest, fences; beside `safe` what is not seen of the
    group's type; what is not certain. Page and report say the same; the page may show one group alone."""
    page, section = get(site, PAGES[1])[1], reported(tables)[0]
    unsure = get(site, PAGES[2])[1]
    for part in (
        "Partition 2 was begun with 58 records of partition 0 below offset 4,800 open, the first at offset 4,711",
        "2026-11-22 22:24:05 UTC state partition 17, offset 90,210",
        "5feceb66ffc86f38 4,722 → 10",
        "The group was placed in partition 3 at offset 312 and never got 312 records before it.",
        REASONS["between_looks"],
        "Not seen: work that was not committed",
        "partition 0 4,800 6,000 keys not read 0 partition 1 4,801 6,000 5,990 0",
        "another count may have lain in between",
        "Whether every producer knows the count: they do from 2026-11-23 03:13:05 UTC.",
        "no mapping of keys is configured",
        "not looked at since the settle time",
    ):
        assert part in words(page + unsure), part
        assert part in words(section), part
    assert "Not certain" not in words(page)
    assert "record?state-partition=17&amp;offset=90215" in page
    assert "<a " not in section
    assert get(site, f"{PAGES[1]}&group=search")[1].count("Not seen: a first delivery in progress") == 2


def test_nothing_found_is_not_nothing_looked_at(tmp_path: Path) -> None:
    """Without a look and without an audit, page, report and JSON say which command is missing; then since when no topic
    grew before the run ended."""
    later = GrownTopic(hours=-1, verdicts={"billing": "broken"})
    tables = stored(tmp_path, {})
    for name, reason, shown in (
        ("", "No topic was looked at yet: run acktrail expand check TOPIC.", ""),
        ("partition_observations", "No topic was audited yet: run acktrail expand check TOPIC.", ""),
        ("partition_expansions", "No topic gained partitions since 2026-11-23 03:54:05 UTC.", later.topic),
    ):
        write_rows(tables, {name: rows_of(later)[name]} if name else {})
        html, found, line = reported(tables)
        assert found == {"reason": reason, "expansions": []}
        assert reason in words(html)
        assert reason in line
        with served(tables) as url:
            assert (shown or reason) in words(get(url, "expansions")[1])


def test_hostile_names_are_text(tables: Tables, site: str) -> None:
    """Names of groups and topics by anybody's hand are shown with their hidden characters, and do nothing."""
    for html in (get(site, PAGES[3])[1], reported(tables)[0]):
        assert all(printable(name) in words(html) for name in HOSTILE)
        assert not any(bad in html for bad in ("<script>document", "<img", "\x1b", "\u202e"))


def test_nothing_known_of_a_row_is_unknown(tmp_path: Path) -> None:
    """Rows of another release, or of a damaged table, without a topic, a partition, a verdict: shown, never good. An
    expansion whose table cannot be read is not one that nobody knows."""
    tables = stored(tmp_path, dict.fromkeys(JUDGED, [{"event_id": "e", "keys": [{}]}] * 2))
    with served(tables) as url:
        pages = [get(url, path) for path in ("expansions", "expansions?event=e")]
    for status, page in (*pages, (200, reported(tables)[0])):
        assert (status, "unknown verdict" in words(page), 'class="badge ok"' in page) == (200, True, False)
    for file in (tmp_path / JUDGED[0]).rglob("*.parquet"):
        file.write_bytes(b"not parquet at all")
    with served(tables) as url:
        status, page = get(url, "expansions?event=e")
    assert (status, JUDGED[0] in page) == (503, True)


def test_many_are_cut_and_counted(tmp_path: Path) -> None:
    """10,000 verdicts and 40 topics: page and report stay small, the worst verdicts and fences that are not known are
    there, what is left off is told."""
    large = GrownTopic(old_count=5_000, new_count=10_000, verdicts={"billing": "safe", "fraud": "broken"})
    more = (GrownTopic(topic=f"t{number}", verdicts={"a": "safe"}) for number in range(40))
    rows = {**rows_of(large, *more), "partition_observations": []}
    rows["expansion_fences"][4_711]["fence_high"] = None
    tables = stored(tmp_path, rows)
    html, found, _ = reported(tables)
    with served(tables) as url:
        page = get(url, f"expansions?event={large.event_id}")[1]
    for text, size in ((page, 50), (html, 12)):
        assert len(text) < 600_000
        assert words(text).count(" was begun with ") == size
        assert "partition 4,711 9,511 unknown" in words(text)
        assert f"{10_000 - size:,} more verdicts not shown" in words(text)
        assert f"{5_000 - size:,} more fences not shown" in words(text)
    assert (len(found["expansions"]), html.count("<h3>")) == (41, 10)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_pages_are_accessible_and_fit(site: str, tmp_path: Path) -> None:
    """In light, in dark and on a phone: nothing for axe, no scrolling sideways, no table that is cut off."""
    frames = "[...document.querySelectorAll('.frame')].every(frame => frame.scrollWidth <= frame.clientWidth)"
    looks = (("light", 1280, ()), ("dark", 1280, CONTRAST), ("light", 380, ()))
    with browsing(tmp_path / "browser") as tab:
        for address, (scheme, width, rules) in product(PAGES, looks):
            show_as(tab, scheme, width)
            tab.value("window.isOld = true")
            tab.open(site + address)
            tab.until("!window.isOld && document.readyState === 'complete'", timeout_s=60)
            assert axe_violations(tab, rules) == [], (address, scheme, width)
            assert tab.value(f"document.documentElement.scrollWidth <= innerWidth && {frames}"), (address, width)
