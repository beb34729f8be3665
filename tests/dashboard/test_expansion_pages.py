"""Expansions as web pages: the worst first, what proves each verdict, what is not certain; hostile names, many rows."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from drivers.axe import CONTRAST, axe_violations, show_as
from drivers.browser import CHROMIUM, PAGE_BYTES, Page, browsing
from samples.dashboard_tables import HOSTILE
from samples.expansion_tables import LOOKS, NOW, SampleExpansion, expansion_rows, write_rows
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS, dependency_texts
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.lists.expansion_story import audit_page
from acktrail_dashboard.web.application import create_app
from acktrail_dashboard.web.charts.fence_charts import HEIGHT, WIDTH, FenceChart, count_timeline

TROUBLE = SampleExpansion(
    verdicts={
        "fraud-scoring": "violation", "billing-workers": "safe", "search-index": "possible_violation",
        "ledger": "indeterminate", HOSTILE[0]: "not_started",
    },
    types={"fraud-scoring": "share", "ledger": "classic"},
    skipped={"fraud-scoring": 312},
)  # fmt: skip
SETTLING = SampleExpansion(
    topic="clicks", topic_id="000001MCtK-X86swAAAAAA", old_count=6, new_count=8, look=LOOKS - 1,
    mapping=KeyMapping.NONE, verdicts={"warehouse": "unknown_fence"},
)  # fmt: skip
WELL = SampleExpansion(topic="payments", topic_id="000002MCtK-X86swAAAAAA", new_count=4, look=5)
HOSTILE_TOPIC = SampleExpansion(
    topic=HOSTILE[0], topic_id="000003MCtK-X86swAAAAAA", verdicts=dict.fromkeys(HOSTILE, "safe")
)
EVENT = f"expansion?event={TROUBLE.event_id}"
PAGES = ("expansions", EVENT, f"expansion?event={SETTLING.event_id}", f"expansion?event={HOSTILE_TOPIC.event_id}")


def raw(url: str, path: str) -> tuple[int, str]:
    """Status and HTML of a page."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=60)
    connection.request("GET", "/" + path)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def words(page: str) -> str:
    """A page without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def links(page: str) -> list[str]:
    return [unescape(address) for address in re.findall(r'href="([^"]+)"', page)]


@contextmanager
def served(root: Path, samples: Sequence[SampleExpansion]) -> Iterator[str]:
    write_rows(Tables(TablesConfig(uri=str(root))), expansion_rows(samples))
    with web_server(create_app(TablesConfig(uri=str(root)), clock=lambda: NOW)) as url:
        yield url


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Four expansions: one with a violation, one that is settling, one that is well, one with hostile names."""
    with served(tmp_path_factory.mktemp("expansions") / "tables", [WELL, SETTLING, TROUBLE, HOSTILE_TOPIC]) as url:
        yield url


def test_the_worst_expansion_is_first(site: str) -> None:
    """In the list with what it is about, on the overview as a line; each leads to its page."""
    status, page = raw(site, "expansions")
    text = words(page)
    assert status == 200
    order = [address for address in links(page) if address.startswith("expansion?event=")]
    assert [address.split("=")[1] for address in order[:2]] == [TROUBLE.event_id, SETTLING.event_id]
    assert "1 violation, 1 possible violation, 1 indeterminate, 1 not started, 1 safe" in text
    assert "312 records skipped" in text
    assert "6 → 8" in text
    assert "Another count may have been in between." in text
    _, overview = raw(site, "")
    assert "1 group began with a partition too early after 1 expansion" in words(overview)
    assert "312 records were skipped" in words(overview)
    assert "expansions?worst=violation" in links(overview)


def test_a_filter_lets_through_what_it_names(site: str) -> None:
    """By topic, status and worst verdict; another word is refused with the choices there are."""
    for query, kept in (("topic=PAY", WELL), ("status=settling", SETTLING), ("worst=violation", TROUBLE)):
        found = {address for address in links(raw(site, f"expansions?{query}")[1]) if "?event=" in address}
        assert found == {f"expansion?event={kept.event_id}"}
    assert "No expansion is so." in words(raw(site, "expansions?topic=nothing")[1])
    for wrong in (
        "expansions?worst=bad",
        "expansions?status=x",
        "expansions?page=x",
        "expansion",
        EVENT + "&verdict=x",
    ):
        assert raw(site, wrong)[0] == 400
    assert raw(site, "expansion?event=0123")[0] == 404
    assert raw(site, EVENT + "&of=ghost&destination=9")[0] == 404


def test_a_page_has_what_proves_a_verdict(site: str) -> None:
    """The two observations with the positions, the fences, the dependencies in words, starts, and the count over
    time."""
    text = words(raw(site, f"{EVENT}&of=fraud-scoring&destination=2")[1])
    for part in (
        "orders 2 → 3 ■ violation", "source 0 at 2,400", "own at 25",
        "Partition 2 waits for 2 of the 2 partitions from before, 0, 1: keys moved there.",
        "Partition 0 waits for 1 of the 2 partitions from before, 1: keys moved between partitions that were there",
        "partition 0 4,800 6,000 1,200 no key audit bracketed",
        "skipped records 312 0 312",
        "the fence is 4,800 to 6,000; the destination was not begun until 2026-11-23 01:21:05 UTC, and was begun at",
        "2 partitions at 2026-11-23 01:11:05 UTC, 3 at 2026-11-23 01:21:05 UTC",
    ):  # fmt: skip
        assert part in text, part


def test_what_is_not_certain_is_there_in_words(site: str) -> None:
    """A count in between, an expansion that settles, a mapping that is not known, fences and verdicts that are not; and
    always that a delivery in progress is not seen."""
    text = words(raw(site, f"expansion?event={SETTLING.event_id}")[1])
    assert "another count can have been in between" in text
    assert "the expansion is settling" in text
    assert "no mapping is configured for the topic" in text
    assert "The order of 2 destinations (unknown fence)" in text
    assert "in progress is not seen" in text
    text = words(raw(site, f"expansion?event={WELL.event_id}")[1])
    assert "the expansion is settling" not in text
    assert "in progress is not seen" in text


def test_a_hostile_name_is_text(site: str) -> None:
    """Names of groups and topics are shown as text, and their links lead to themselves alone."""
    for path in (PAGES[0], PAGES[3]):
        status, page = raw(site, path)
        assert status == 200
        assert "<script>document" not in page
        assert "<img" not in page
        assert words(page).isprintable()
    page = raw(site, PAGES[3])[1]
    for name in HOSTILE:
        own = urlencode({"group": name})
        assert any(own in address for address in links(page))
        assert raw(site, f"{PAGES[3]}&{own}&{urlencode({'of': name, 'destination': 2})}")[0] == 200


def test_without_tables_the_page_says_what_to_run(tmp_path: Path) -> None:
    """No table yet; then observations alone, which were not judged; then an audit that found nothing."""
    with web_server(create_app(TablesConfig(uri=str(tmp_path / "none")), clock=lambda: NOW)) as url:
        status, page = raw(url, "expansions")
        assert (status, "acktrail expand observe" in page) == (200, True)
        assert raw(url, EVENT)[0] == 404
        assert "began with a partition too early" not in raw(url, "")[1]
        rows = expansion_rows([WELL])["partition_observations"]
        write_rows(Tables(TablesConfig(uri=str(tmp_path / "none"))), {"partition_observations": rows})
        assert "No topic was audited yet: run acktrail expand audit." in words(raw(url, "expansions")[1])
        write_rows(Tables(TablesConfig(uri=str(tmp_path / "none"))), {"partition_expansions": []})
        assert "No topic gained partitions." in words(raw(url, "expansions")[1])


@pytest.mark.parametrize("table", ["partition_expansions", "expansion_fences", "ordering_audits", "group_positions"])
def test_a_damaged_table_is_named_and_the_rest_is_shown(tmp_path: Path, table: str) -> None:
    """Garbage in place of its files: 503, its name, no traceback."""
    with served(tmp_path / "tables", [TROUBLE]) as url:
        for file in (tmp_path / "tables" / table).rglob("*.parquet"):
            file.write_bytes(b"not parquet at all")
        status, page = raw(url, EVENT)
    assert status == 503
    assert table in page
    assert "Traceback" not in page


def test_ten_thousand_destinations_stay_a_page(tmp_path: Path) -> None:
    """50 rows of each list, the worst first, the others a click away; dependencies are one sentence."""
    large = SampleExpansion(
        old_count=5_000, new_count=15_000, look=5, most_destinations=10_000,
        verdicts={"billing-workers": "safe", "fraud-scoring": "violation"},
    )  # fmt: skip
    rows = expansion_rows([large])
    rows["partition_observations"] = []
    write_rows(Tables(TablesConfig(uri=str(tmp_path))), rows)
    with web_server(create_app(TablesConfig(uri=str(tmp_path)), clock=lambda: NOW)) as url:
        status, page = raw(url, f"expansion?event={large.event_id}")
        last = raw(url, f"expansion?event={large.event_id}&page=400")[1]
    assert status == 200
    assert len(page) < 150_000
    assert page.count('data-label="Verdict"') == 50
    assert "1 of 400" in words(page)
    first, end = (re.findall(r'data-label="Verdict"><div class="v">(.*?)</div>', text) for text in (page, last))
    assert all("violation" in each for each in first)
    assert all("safe" in each for each in end)
    assert "10,000 partitions (5,000 to 14,999) each wait for 1 of the 5,000 partitions from before" in words(page)


def test_verdicts_are_sorted_with_an_unknown_one_among_the_unproven() -> None:
    """By verdict, then by what is left; a word of a later release is never good news."""
    rows = expansion_rows([TROUBLE])["ordering_audits"]
    rows[-1]["verdict"] = "later_release"
    for left, row in enumerate(row for row in rows if row["verdict"] == "violation"):
        row["remaining"] = left
    import pyarrow as pa

    from acktrail.columnar.schemas.table_schemas import TABLES

    found = audit_page(pa.Table.from_pylist(rows, schema=TABLES["ordering_audits"]))
    verdicts = [row["verdict"] for row in found.page.rows]
    assert verdicts[0] == "violation"
    assert [row["remaining"] for row in found.page.rows[:3]] == [2, 1, 0]
    assert verdicts.index("later_release") < verdicts.index("safe")
    assert dict(found.verdicts)["later_release"] == 1


def test_pictures_stay_within_their_frame() -> None:
    """Every coordinate, also of intervals too short to be seen and of a position that stands still."""
    chart = FenceChart(
        points=((NOW, 7), (NOW + timedelta(days=90), 7)), low=7, high=None, before=None, begun=NOW + timedelta(days=91)
    )
    still = count_timeline(expansion_rows([WELL, TROUBLE])["partition_expansions"], WELL.event_id, NOW)
    assert still is not None
    assert count_timeline([], "x", NOW) is None
    for path in (chart.line, chart.dots, still.line):
        assert all(0 <= float(number) <= WIDTH for number in re.findall(r"[\d.]+", path))
    assert chart.beginning is not None
    assert all(width > 0 for _, _, width in still.intervals)
    assert chart.fence is not None
    assert 0 <= chart.fence[1] <= HEIGHT


def test_dependencies_on_an_earlier_expansion_say_so() -> None:
    """Keys can skip a partition without a record of theirs: 4 to 6 to 9."""
    row = {"partition": 1, "kind": "existing_move", "source_step": 1, "source_count": 4, "sources": 3, "event_id": "b"}
    own, earlier = dependency_texts([{**row, "source_event_id": "a"}, {**row, "source_event_id": "b"}])
    assert "from before an earlier expansion" in earlier
    assert "from before," in own
    assert dependency_texts([{**row, "source_step": None, "source_event_id": "b"}]) == [
        "What 1 partition wait for is not known."
    ]
    assert len(ORDERING_VERDICTS) == 7


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_pages_are_accessible_and_fit(site: str, tmp_path: Path) -> None:
    """In light, in dark and on a phone: nothing for axe, no scrolling sideways; less than 200 kB, unpacked."""
    with browsing(tmp_path / "browser") as tab:
        for address in PAGES:
            fits(tab, site + address)


def fits(tab: Page, url: str) -> None:
    show_as(tab, "light", 1280)
    tab.value("window.isOld = true")
    tab.open(url)
    tab.until("!window.isOld && document.readyState === 'complete'", timeout_s=60)
    for scheme, width, rules in (("light", 1280, ()), ("dark", 1280, CONTRAST), ("light", 380, ())):
        show_as(tab, scheme, width)
        assert axe_violations(tab, rules) == [], (url, scheme, width)
        assert tab.value("document.documentElement.scrollWidth <= innerWidth"), (url, width)
    assert 2_000 < tab.value(PAGE_BYTES) < 200_000, url
    frames = "[...document.querySelectorAll('.frame')]"
    assert tab.value(f"{frames}.every(frame => frame.scrollWidth <= frame.clientWidth)"), f"a table is cut off: {url}"
