"""The report: complete, self-contained, honest, safe with every name that a cluster can hold, kept for each run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest
from drivers.command_line import run
from jobs.world import World, batch, key_of, snapshot, update
from samples.history_tables import build
from samples.sample_run import HOSTILE, RUN, hostile_run, sample_run, share_partition, store, table

from acktrail.atomic_files import write_whole
from acktrail.config import TablesConfig, dashboard_url, reports_kept
from acktrail.errors import AcktrailError, ConfigurationError, NoTables, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.text_tables import printable
from acktrail.view.run_summary import RunTables, Summary, summarize, summary_json, unknowns
from acktrail_dashboard.report import PARTITIONS_SHOWN, file_name, prune, publish, read_run, render_html, render_text

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import report_schema  # a program of the folder `tools`

WRITTEN = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
FOREIGN = {"script", "iframe", "object", "embed", "img", "image", "link", "base", "form", "video", "audio", "use"}


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
        if tag not in {"meta", "br", "hr", "wbr"}:
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


def render(tables: RunTables) -> str:
    return render_html(tables, RUN, written_at=WRITTEN, broker="Kafka 4.3.1 at localhost:9092")


@pytest.fixture(scope="module")
def html() -> str:
    return render(sample_run())


@pytest.fixture(scope="module")
def hostile() -> str:
    return render_html(hostile_run(), RUN, written_at=WRITTEN, broker=HOSTILE[0])


@pytest.mark.parametrize("which", ["html", "hostile"])
def test_nothing_outside_the_file_is_named_by_the_page(which: str, request: pytest.FixtureRequest) -> None:
    """No script, frame, image, font, link or form; every reference is a place in the same page. The policy names the
    one style sheet by its hash, before anything else is parsed."""
    text = request.getfixturevalue(which)
    page = Page(text)
    assert {tag for tag, _ in page.elements}.isdisjoint(FOREIGN)
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for _, attributes in page.elements:
        foreign = {key for key in attributes if key.startswith("on") or key in {"src", "srcset", "style", "xlink:href"}}
        assert not foreign
        assert attributes.get("href", "#share-partitions").removeprefix("#") in ids
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "@import" not in style
    assert all(target.startswith("#") and target[1:] in ids for target in re.findall(r"url\((.*?)\)", style))
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_hostile_names_are_shown_as_text(hostile: str) -> None:
    """Every name is in the page as text, whole, with its hidden characters shown; none of it became an element."""
    page = Page(hostile)
    for name in HOSTILE:
        assert printable(name) in page.words
    assert not {"\u202e", "\x1b", "\x00"} & set(hostile)
    assert sum(tag == "title" for tag, _ in page.elements) == 1 + hostile.count('role="img"')


def _rows_of(html: str, section: str) -> list[dict[str, str]]:
    """The data rows of a section's tables, cells by column title."""
    part = html.split(f'<section id="{section}"')[1].split("</section>", 1)[0]
    rows = re.findall(r'<tr role="row"[^>]*>(.*?)</tr>', part.split("</thead>", 1)[1], re.DOTALL)
    cell = re.compile(r'<t[dh][^>]*data-label="([^"]*)"[^>]*>(.*?)</t[dh]>', re.DOTALL)
    read = ({title: Page(content).words for title, content in cell.findall(row)} for row in rows)
    return [cells for cells in read if cells]


def test_every_row_of_the_summary_is_in_the_page(html: str) -> None:
    """As many rows as the summary has, table by table. What is unknown is a word with a reason and never a number; -1
    is nowhere. Evidence is the address in the state topic; a subject is named, not called by its key."""
    summary, words = summarize(sample_run(), RUN), Page(html).words
    for section, expected in {
        "share-partitions": summary.partitions, "findings": summary.findings, "archived": summary.archived,
        "rules": summary.expectations, "groups": summary.groups,
    }.items():  # fmt: skip
        assert len(_rows_of(html, section)) == len(expected), section
    for line in (*unknowns(summary), f"{summary.totals.lag.known:,}", f"{summary.totals.records_exported:,}"):
        assert line in words
    for row, cells in zip(summary.partitions, _rows_of(html, "share-partitions"), strict=True):
        for figure, column in ((row.start_offset, "Start offset"), (row.lag, "Lag")):
            assert cells[column].startswith("unknown" if figure.value is None else f"{figure.value:,}")
            assert figure.value is not None or figure.reason in cells["Note"]
    assert not re.search(r">\s*[-\N{MINUS SIGN}]1\s*<", html)
    for found, cells in zip(summary.findings, _rows_of(html, "findings"), strict=True):
        topic = f"topic id {found.topic_id}" if found.topic is None else found.topic
        assert cells["Subject"] == f"{found.group_id} {topic} {found.partition}"
        if found.evidence_offset is not None:
            place = f"state partition {found.evidence_state_partition}, offset {found.evidence_offset:,}"
            assert cells["Evidence"] == place


def test_a_sum_over_nothing_known_is_not_zero() -> None:
    """Where no share partition's lag and archived count is known, page and terminal say unknown, not 0; an empty run
    has a line in place of each table."""
    _, verdict = share_partition("g", "t", 0, start=None, end=5)
    none = table("reconciliations", [{**verdict, "archived_seen": None}])
    states = sample_run().share_partition_states.slice(0, 0)
    tables = replace(sample_run(), reconciliations=none, share_partition_states=states)
    tiles = render(tables).split('<ul class="tiles"', 1)[1].split("</ul>", 1)[0]
    words, text = Page(f"<ul{tiles}</ul>").words, render_text(summarize(tables, RUN))
    for name in ("Lag", "Archived"):
        assert f"{name}unknown" in words
        assert f"{name:<13} unknown\n" in text
    words = Page(render(RunTables.empty())).words
    assert "No share partition was seen in this run." in words
    assert "No rule was broken." in words


def test_a_large_cluster_is_cut_and_says_so() -> None:
    """Thousands of share partitions: the page stays small, totals count all, every group is there, what needs attention
    is drawn first, and what is left out is counted."""
    pairs = [
        share_partition(f"group-{number % 40}", "t", number, start=0, end=5,
                        verdict="missing_state" if number % 100 == 99 else "match")
        for number in range(3_000)
    ]  # fmt: skip
    tables = replace(
        sample_run(),
        share_partition_states=table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=table("reconciliations", [verdict for _, verdict in pairs]),
    )
    html = render(tables)
    rows = _rows_of(html, "share-partitions")
    assert len(html) < 1_500_000
    assert len(rows) == PARTITIONS_SHOWN
    left_off = re.findall(r"(\d+) share partitions? not shown", html)
    assert sum(map(int, left_off)) == 3_000 - PARTITIONS_SHOWN
    assert set(re.findall(r"<bdi>(group-\d+)</bdi></strong>", html)) == {f"group-{number}" for number in range(40)}
    assert sum("missing state" in row["Verdict"] for row in rows) == 30
    assert "2,970 of 3,000 share partitions match" in html


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The file appears complete; when it cannot be written the old one stays and nothing else is left."""
    out = tmp_path / "new" / "report.html"
    assert write_whole("one \N{BLACK SQUARE}", out) == out
    with pytest.raises(UnicodeEncodeError):
        write_whole("half \ud800", out)
    assert out.read_text(encoding="utf-8") == "one \N{BLACK SQUARE}"
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_whole("two", out / "below-a-file" / "report.html")


@pytest.fixture
def stored(tmp_path: Path) -> TablesConfig:
    """The sample's rows in real tables."""
    return store(tmp_path / "tables")


def _later(stored: TablesConfig, run_id: str = "later") -> None:
    """Another run of the same rows, an hour later."""
    rows = sample_run().reconciliations.to_pylist()
    hour = timedelta(hours=1)
    moved = [{**row, "run_id": run_id, "observed_at": row["observed_at"] + hour} for row in rows[:3]]
    Tables(stored).append("reconciliations", pa.Table.from_pylist(moved, schema=sample_run().reconciliations.schema))


def summary(config: TablesConfig, run_id: str | None) -> Summary:
    """Of stored tables."""
    return summarize(*read_run(config, run_id))


def test_an_older_run_is_shown_when_named(stored: TablesConfig) -> None:
    """Through storage and back the summary is the same value; a later run becomes the default and leaves the named one
    as it was."""
    assert summary(stored, RUN) == summary(stored, None) == summarize(sample_run(), RUN)
    _later(stored)
    assert (summary(stored, None).head.run_id, summary(stored, None).totals.share_partitions) == ("later", 3)
    assert summary(stored, RUN) == summarize(sample_run(), RUN)


def test_offsets_archived_earlier_are_found_in_the_history(tmp_path: Path) -> None:
    """Where more was archived than the state shows, the history has which offsets; without it they are missing, and the
    report counts them."""
    world = World(tmp_path / "tables", state_partitions=1)
    key = key_of("g")
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(3, 9, 4, 5), batch(0, 2, 2, 1))))
    world.write(update(key, 10, 0, ()))
    world.observe("r1")
    own = {"run_id": "r1", "group_id": "g", "topic_id": key.topic_id, "partition": 0}
    state = {**own, "state_partition": 0, "start_offset": 10, "archived_seen": 7, "last_record_offset": 2}
    world.tables.append("share_partition_states", table("share_partition_states", [{**state, "batches": []}]))
    world.tables.append("reconciliations", table("reconciliations", [{**own, "verdict": "match"}]))

    def page() -> str:
        rows, run_id = read_run(world.config, None)
        return render_html(rows, run_id, written_at=WRITTEN)

    assert summary(world.config, None).archived == ()
    assert "7 more whose offsets are not in the history" in page()
    build(world.tables)
    (archived,) = summary(world.config, None).archived
    assert (archived.first_offset, archived.last_offset, archived.delivery_count) == (3, 9, 5)
    assert not archived.retained
    assert "7 in the history only" in page()


def test_the_command_prints_the_summary_and_writes_the_report(
    stored: TablesConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data on stdout, the path on stderr; --json is one object; --out is the same run's page."""
    out = tmp_path / "deep" / "report.html"
    plain = run(capsys, "dashboard", "report", "--tables", stored.uri, "--out", out)
    assert plain.code == 0
    assert plain.stdout == render_text(summarize(sample_run(), RUN)) + "\n"
    assert str(out) in plain.stderr
    page = out.read_text(encoding="utf-8")
    assert page.lstrip().startswith("<!doctype html>")
    assert RUN in page
    as_json = run(capsys, "dashboard", "report", "--tables", stored.uri, "--run-id", RUN, "--json")
    assert as_json.answer["totals"]["share_partitions"] == sample_run().reconciliations.num_rows


def test_refusals_are_one_line_and_leave_nothing(
    stored: TablesConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown run, tables without a run, a place that cannot be written: an error of ours, with a hint."""
    file = tmp_path / "file"
    file.touch()
    cases: tuple[tuple[str, str | Path, type[AcktrailError], str], ...] = (
        ("--run-id", "no-such-run", UnknownName, "unknown run 'no-such-run'"),
        ("--tables", tmp_path / "empty", NoTables, "no tables at"),
        ("--out", file / "report.html", ConfigurationError, "cannot be written"),
    )
    for option, value, expected, says in cases:
        done = run(capsys, "dashboard", "report", "--json", "--tables", stored.uri, option, value)
        error = json.loads(done.stderr)["error"]
        assert (done.code, error["type"]) == (expected.exit_code, expected.__name__)
        assert says in error["message"]
        assert error["hint"]
    assert not (tmp_path / "empty").exists()
    assert file.read_bytes() == b""


def test_every_run_keeps_its_report_and_the_newest_has_a_stable_name(stored: TablesConfig, tmp_path: Path) -> None:
    """A later run takes the stable name and leaves the earlier run's files; publishing the earlier one again does not
    take it back."""
    folder = tmp_path / "reports"
    first = publish(stored, RUN, folder, kept=5)
    assert first.newest == folder / "acktrail-report.html"
    assert first.page.read_bytes() == first.newest.read_bytes()
    _later(stored)
    second = publish(stored, "later", folder, kept=5)
    assert second.newest is not None
    again = publish(stored, RUN, folder, kept=5)
    assert again.newest is None
    assert ", run later</title>" in second.newest.read_text(encoding="utf-8")
    assert f", run {RUN}</title>" in first.page.read_text(encoding="utf-8")
    assert json.loads((folder / "acktrail-report.json").read_text())["head"]["run_id"] == "later"
    assert json.loads(again.data.read_text()) == json.loads(summary_json(summarize(sample_run(), RUN)))


def test_the_oldest_reports_go_page_and_data_together(tmp_path: Path) -> None:
    """The newest runs stay, the files of nobody else are touched, and at least one run is kept."""
    for age, each in enumerate(["d", "c", "b", "a"]):
        for suffix in ("html", "json"):
            file = tmp_path / f"acktrail-report-{each}.{suffix}"
            file.touch()
            os.utime(file, (1_000_000 - age, 1_000_000 - age))
    others = {"acktrail-report.html", "acktrail-report-notes.txt", "index.html"}
    for name in others:
        (tmp_path / name).touch()
    for kept, runs in ((2, "cd"), (0, "d")):
        prune(tmp_path, "acktrail-report", kept=kept)
        own = {f"acktrail-report-{each}.{suffix}" for each in runs for suffix in ("html", "json")}
        assert {file.name for file in tmp_path.iterdir()} == others | own


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "a/b", "a b", "x" * 300, "2026-11-21T04:46:00Z", "é\n\u202e"])
def test_a_run_id_is_never_a_path(run_id: str) -> None:
    """A file's name has no separator, is short, and differs from that of an id that looks alike once cleaned."""
    name = file_name(run_id)
    assert Path(name).name == name
    assert len(name) <= 120
    assert name.isascii()
    assert file_name("run-1") == "run-1"
    assert file_name(run_id.replace("/", "-").replace(" ", "-") + "?") != name


def test_real_output_has_the_documented_form() -> None:
    """docs/reference/report-schema.json is what `tools/report_schema.py` makes: run it after a change. The JSON of a
    run with every kind of trouble, and of an empty one, validates; one with a field more or a text for a number does
    not."""
    schema = json.loads(report_schema.FILE.read_text("utf-8"))
    assert schema == report_schema.schema()
    validator = jsonschema.Draft202012Validator(schema)
    form = json.loads(summary_json(summarize(sample_run(), RUN)))
    validator.validate(form)
    validator.validate(json.loads(summary_json(summarize(RunTables.empty(), RUN))))
    for broken in ({**form, "more": 1}, {**form, "findings_seen_later": "3"}, {**form, "schema": "acktrail-report/9"}):
        assert not validator.is_valid(broken)


def test_settings_of_reports_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into links is an http address without credentials; a wrong number of kept reports is refused, not
    taken as the default."""
    for text in ("javascript:alert(1)", "https://user:secret@host", 'https://h/"><script>', "ftp://h"):
        monkeypatch.setenv("ACKTRAIL_DASHBOARD_URL", text)
        with pytest.raises(ConfigurationError, match="ACKTRAIL_DASHBOARD_URL"):
            dashboard_url()
    monkeypatch.setenv("ACKTRAIL_DASHBOARD_URL", "https://acktrail.example/here/")
    assert dashboard_url() == "https://acktrail.example/here"
    for text in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("ACKTRAIL_REPORTS_KEPT", text)
        with pytest.raises(ConfigurationError, match="ACKTRAIL_REPORTS_KEPT"):
            reports_kept()
