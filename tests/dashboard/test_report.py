"""The report: complete, self-contained, honest, and safe with every name a cluster can hold."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.errors import ConfigurationError
from acktrail.plain_tables import printable
from acktrail_dashboard.html.report import PARTITIONS_SHOWN, render_html, write_whole
from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.summary import summarize
from acktrail_dashboard.terminal import render_text
from acktrail_dashboard.wording import unknowns

WRITTEN = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
VOID = {"meta", "br", "hr", "wbr"}
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</title></style></svg><img src=//evil.example/x onerror=alert(1)>",
    "\"onmouseover='alert(1)' style=\"background:url(https://evil.example/)",
    "two\nlines\r\tand a tab",
    "../../etc/passwd",
    "evil\u202egnp.exe\u2066",
    "zero\u200bwidth",
    "\x1b[31mred\x9b0m\x00",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
    "x" * 255,
    "&lt;already&gt; &amp; escaped",
    "' -- javascript:alert(1)",
)
NAMED = (
    "rule", "severity", "subject", "detail", "suite", "expectation", "observed_value", "topic", "topic_id", "status",
    "successor_topic_id", "group_id", "group_state", "assignor", "error", "completeness_reason",
)  # fmt: skip
"""Columns whose text comes from a cluster, or from tables that somebody else may write."""


class Page(HTMLParser):
    """A page's elements; raises where a tag is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attrs}) == len(attrs)
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text.append(data)

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def words(self) -> str:
        return "".join(self.text)


def render(tables: RunTables, run_id: str) -> str:
    return render_html(tables, run_id, written_at=WRITTEN, broker="Kafka 4.3.1 at localhost:9092")


@pytest.fixture(scope="module")
def html(sample: RunTables, run_id: str) -> str:
    return render(sample, run_id)


@pytest.fixture(scope="module")
def hostile(
    sample: RunTables,
    run_id: str,
    make_table: Callable[..., pa.Table],
    make_share_partition: Callable[..., tuple[dict[str, Any], dict[str, Any]]],
) -> str:
    """A run in which everything that has a name has a hostile one."""
    pairs = [
        make_share_partition(
            name, HOSTILE[number - 3], number, start=5, end=9, batches=((5, 6, 4, 5),), verdict=name, reason=name
        )
        for number, name in enumerate(HOSTILE)
    ]
    words = [
        dict.fromkeys(NAMED, name)
        | {"success": False, "configs": [(name, name)], "group_type": "share"}
        for name in HOSTILE
    ]  # fmt: skip
    tables = replace(
        sample,
        share_partition_states=make_table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=make_table("reconciliations", [verdict for _, verdict in pairs]),
        findings=make_table("findings", words),
        quality_results=make_table("quality_results", words),
        topics=make_table("topics", words),
        group_observations=make_table("group_observations", words),
    )
    return render_html(tables, run_id, written_at=WRITTEN, broker=HOSTILE[0])


@pytest.mark.parametrize("which", ["html", "hostile"])
def test_nothing_outside_the_file_is_named_by_the_page(which: str, request: pytest.FixtureRequest) -> None:
    """No script, frame, image, font, link or form; every reference is a place in the same page."""
    page = Page(request.getfixturevalue(which))
    assert {tag for tag, _ in page.elements}.isdisjoint(
        {
            "script",
            "iframe",
            "object",
            "embed",
            "img",
            "image",
            "link",
            "base",
            "form",
            "video",
            "audio",
            "use",
            "source",
        }
    )
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for _, attributes in page.elements:
        assert not {
            key for key in attributes if key.startswith("on") or key in {"src", "srcset", "style", "xlink:href"}
        }
        assert attributes.get("href", "#share-partitions").removeprefix("#") in ids
    style = re.search(r"<style>(.*?)</style>", request.getfixturevalue(which), re.DOTALL)
    assert style is not None
    assert "@import" not in style[1]
    assert all(target.startswith("#") and target[1:] in ids for target in re.findall(r"url\((.*?)\)", style[1]))


def test_the_policy_allows_the_one_style_sheet_and_nothing_else(html: str) -> None:
    """The policy names the style by the hash of what is in the page, before anything else is parsed."""
    page = Page(html)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    style = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert len(style) == 1
    assert policy.split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{digest}'", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_hostile_names_are_shown_as_text(hostile: str) -> None:
    """Every name is in the page as text, whole, with its hidden characters shown; none of it became an element."""
    page = Page(hostile)
    for name in HOSTILE:
        assert printable(name) in page.words
    assert "\u202e" not in hostile
    assert "\x1b" not in hostile
    assert "\x00" not in hostile
    assert sum(tag == "title" for tag, _ in page.elements) == 1 + hostile.count('role="img"')


def test_unknown_is_a_word_with_a_reason_and_never_a_number(sample: RunTables, run_id: str, html: str) -> None:
    """Where a share partition's start offset or lag is unknown its row shows that, and why; -1 is nowhere."""
    summary = summarize(sample, run_id)
    for number, row in enumerate(summary.partitions):
        cells = _rows_of(html, "share-partitions")[number]
        for figure, column in ((row.start_offset, "Start offset"), (row.lag, "Lag")):
            assert cells[column].startswith("unknown" if figure.value is None else f"{figure.value:,}")
            assert figure.value is not None or figure.reason in cells["Note"]
    assert not re.search(r">\s*[-\N{MINUS SIGN}]1\s*<", html)


def _rows_of(html: str, section: str) -> list[dict[str, str]]:
    """The data rows of a section's tables, cells by column title."""
    part = html.split(f'<section id="{section}"')[1].split("</section>", 1)[0]
    rows = re.findall(r'<tr role="row">(.*?)</tr>', part.split("</thead>", 1)[1], re.DOTALL)
    cell = re.compile(r'<t[dh][^>]*data-label="([^"]*)"[^>]*>(.*?)</t[dh]>', re.DOTALL)
    read = ({title: Page(content).words for title, content in cell.findall(row)} for row in rows)
    return [cells for cells in read if cells]


def test_every_row_of_the_summary_is_in_the_page(sample: RunTables, run_id: str, html: str) -> None:
    """As many rows as the summary has, table by table, and the totals in the tiles."""
    summary = summarize(sample, run_id)
    sections = {
        "share-partitions": summary.partitions,
        "findings": summary.findings,
        "archived": summary.archived,
        "expectations": summary.expectations,
        "groups": summary.groups,
        "topics": summary.topics,
    }
    for section, expected in sections.items():
        assert len(_rows_of(html, section)) == len(expected), section
    words = Page(html).words
    for figure in (summary.totals.lag_records, summary.totals.archived_seen, summary.totals.records_exported):
        assert f"{figure:,}" in words
    for line in unknowns(summary):
        assert line in words


def test_a_sum_over_nothing_known_is_not_zero(
    sample: RunTables,
    run_id: str,
    make_table: Callable[..., pa.Table],
    make_share_partition: Callable[..., tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Where no share partition's lag and archived count is known, page and terminal say unknown, not 0."""
    _, verdict = make_share_partition("g", "t", 0, start=None, end=5)
    none = make_table("reconciliations", [{**verdict, "archived_seen": None}])
    tables = replace(sample, reconciliations=none, share_partition_states=sample.share_partition_states.slice(0, 0))
    tiles = render(tables, run_id).split('<ul class="tiles"', 1)[1].split("</ul>", 1)[0]
    words = Page(f"<ul{tiles}</ul>").words
    assert "Lagunknown" in words
    assert "Archivedunknown" in words
    text = render_text(summarize(tables, run_id))
    assert "Lag           unknown\n" in text
    assert "Archived      unknown\n" in text


def test_findings_show_the_record_that_proves_them(sample: RunTables, run_id: str, html: str) -> None:
    """Evidence is the address in the state topic: partition and offset. The subject is named, not called by its key:
    a topic id is shown where no name is known."""
    for row, cells in zip(summarize(sample, run_id).findings, _rows_of(html, "findings"), strict=True):
        topic = f"topic id {row.topic_id}" if row.topic is None else row.topic
        assert cells["Subject"] == f"{row.group_id} {topic} {row.partition}"
        if row.evidence_offset is not None:
            assert (
                cells["Evidence"] == f"state partition {row.evidence_state_partition}, offset {row.evidence_offset:,}"
            )


def test_a_large_cluster_is_cut_and_says_so(
    sample: RunTables,
    run_id: str,
    make_table: Callable[..., pa.Table],
    make_share_partition: Callable[..., tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Thousands of share partitions: the page stays small, totals count all, every group is there, what needs attention
    is drawn first, and drawn rows plus the sums of those left out are all of them."""
    pairs = [
        make_share_partition(f"group-{number % 40}", "t", number, start=0, end=5,
                             verdict="missing_state" if number % 100 == 99 else "match")
        for number in range(3_000)
    ]  # fmt: skip
    tables = replace(
        sample,
        share_partition_states=make_table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=make_table("reconciliations", [verdict for _, verdict in pairs]),
    )
    html = render(tables, run_id)
    rows = _rows_of(html, "share-partitions")
    assert len(html) < 1_500_000
    assert len(rows) == PARTITIONS_SHOWN
    left_off = re.findall(r"(\d+) (?:more|share partitions) not shown", html.split("</section>", 1)[0])
    assert sum(map(int, left_off)) == 3_000 - PARTITIONS_SHOWN
    assert set(re.findall(r"<bdi>(group-\d+)</bdi></strong>", html)) == {f"group-{number}" for number in range(40)}
    assert sum("missing state" in row["Verdict"] for row in rows) == 30
    assert "2,970 of 3,000 share partitions match" in html


def test_pictures_have_words_and_tables_have_headers(html: str) -> None:
    """For people who do not see the pictures: labels with the counts; headers with a scope; unique ids."""
    page = Page(html)
    for picture in page.all("svg"):
        assert picture.get("aria-hidden") == "true" or (picture["role"] == "img" and picture["aria-label"])
    assert all(header.get("scope") in {"col", "row", "rowgroup"} for header in page.all("th"))
    assert len(page.all("table")) == len(page.all("caption"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(region["aria-labelledby"] in ids for region in page.all("section"))
    assert page.elements[0] == ("html", {"lang": "en"})


def test_text_is_readable_in_both_themes(html: str) -> None:
    """Contrast of every pair of text and ground is at least 4.5 to 1 (WCAG AA), light and dark."""
    both = re.findall(r"--([\w-]+):\s*light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", html)
    assert both
    tones = ("ok", "warning", "critical", "unknown", "info")
    pairs = [
        ("ink", "page"),
        ("quiet", "page"),
        ("accent", "page"),
        ("ink", "card"),
        ("quiet", "card"),
        ("accent", "card"),
    ]
    for colours in ({name: light for name, light, _ in both}, {name: dark for name, _, dark in both}):
        for text, ground in [*pairs, *((tone, f"{tone}-bg") for tone in tones), ("critical", "card")]:
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_an_empty_run_renders(run_id: str) -> None:
    """No row anywhere: each table of the page has a line instead."""
    words = Page(render(RunTables.empty(), run_id)).words
    assert "No share partition was seen in this run." in words
    assert "No rule was broken." in words


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The file appears complete; when it cannot be written the old one stays and nothing else is left."""
    out = tmp_path / "new" / "report.html"
    assert write_whole("one \N{BLACK SQUARE}", out) == out
    assert out.read_text(encoding="utf-8") == "one \N{BLACK SQUARE}"
    with pytest.raises(UnicodeEncodeError):
        write_whole("half \ud800", out)
    assert out.read_text(encoding="utf-8") == "one \N{BLACK SQUARE}"
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    with pytest.raises(ConfigurationError, match="cannot write"):
        write_whole("two", out / "below-a-file" / "report.html")
