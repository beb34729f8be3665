"""The page of expansions: the worst first, what proves each verdict, what is not certain; hostile names, many rows."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pytest
from drivers.axe import CONTRAST, axe_violations, show_as
from drivers.browser import CHROMIUM, PAGE_BYTES, Page, browsing
from expansion.support.rows import NOW, GrownTopic, Rows, rows_of, write_rows
from samples.dashboard_tables import HOSTILE
from servers.web_server import web_server

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.application import create_app
from acktrail_expansion.pages.shown_expansions import fences_of
from acktrail_expansion.words import REASONS

TROUBLE = GrownTopic(
    verdicts={
        "fraud-scoring": "broken", "billing": "safe", "search": "safe", "ledger": "not_proven:between_looks",
        "mailer": "skipped",
    },
    types={"fraud-scoring": "share", "mailer": "share", "search": "share"},
)  # fmt: skip
SETTLING = GrownTopic(
    topic="clicks", old_count=6, new_count=8, hours=0.1, is_settled=False, is_single=False, mapping="none",
    verdicts={"warehouse": "not_proven:no_fence"},
)  # fmt: skip
WELL = GrownTopic(topic="payments", hours=50, verdicts={"billing": "safe"})
STRANGE = GrownTopic(topic=HOSTILE[0], hours=3, verdicts=dict.fromkeys(HOSTILE, "safe"))
PAGES = ("expansions", *(f"expansions?event={each.event_id}" for each in (TROUBLE, SETTLING, STRANGE)))


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
def served(root: Path, rows: Rows) -> Iterator[str]:
    write_rows(Tables(TablesConfig(uri=str(root))), rows)
    with web_server(create_app(TablesConfig(uri=str(root)), clock=lambda: NOW)) as url:
        yield url


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Four expansions: one with each verdict, one that is settling, one that is well, one with hostile names."""
    root = tmp_path_factory.mktemp("expansions") / "tables"
    with served(root, rows_of(WELL, SETTLING, TROUBLE, STRANGE)) as url:
        yield url


def test_the_worst_expansion_is_first(site: str) -> None:
    """In the list with groups by verdict; the overview has a line of each verdict that a person must know."""
    status, page = raw(site, "expansions")
    assert status == 200
    order = [address.split("event=")[1] for address in links(page) if "event=" in address]
    assert order == [each.event_id for each in (TROUBLE, SETTLING, STRANGE, WELL)]
    assert "1 order broken, 1 first records skipped, 1 not proven, 2 safe 624 records skipped." in words(page)
    assert "6 → 8 2026-11-23 02:58:05 UTC • settling 1 not proven Another count may have been in between." in words(
        page
    )
    overview = raw(site, "")[1]
    assert "1 group began with a partition too early" in words(overview)
    assert "1 group never got the first records" in words(overview)
    assert {"expansions?verdict=broken", "expansions?verdict=skipped"} <= set(links(overview))


def test_a_filter_lets_through_what_it_names(site: str) -> None:
    """By topic, verdict and group; another word is refused, an unknown expansion is not there."""
    for query, kept in (("topic=PAY", WELL), ("verdict=skipped", TROUBLE), ("topic=l&verdict=not_proven", SETTLING)):
        found = {address for address in links(raw(site, f"expansions?{query}")[1]) if "event=" in address}
        assert found == {f"expansions?event={kept.event_id}"}
    assert "No expansion is so." in words(raw(site, "expansions?topic=nothing")[1])
    share, consumer = (raw(site, f"{PAGES[1]}&group={group}&verdict=safe")[1] for group in ("search", "billing"))
    assert [each.count('data-label="Verdict"') for each in (share, consumer)] == [2, 2]
    assert "group?id=search" in " ".join(links(share))
    assert "group?id=" not in " ".join(links(consumer))
    for wrong in ("expansions?verdict=bad", "expansions?page=x", PAGES[1] + "&verdict=x"):
        assert raw(site, wrong)[0] == 400
    assert raw(site, "expansions?event=0123")[0] == 404


def test_a_page_has_what_proves_a_verdict(site: str) -> None:
    """What was open, the state records that show it, keys by digest, the fence, the count over time; beside `safe` what
    is not seen of the group's type."""
    page = raw(site, PAGES[1])[1]
    text = words(page)
    for part in (
        "orders 2 → 4 ■ order broken",
        "Partition 2 was begun while 58 records of partition 0 below offset 4,800 were open, the first at offset 4,711",
        "source 2026-11-22 22:24:05 UTC state partition 17, offset 90,210",
        "5feceb66ffc86f38 4,722 → 10",
        "The group was placed in partition 3 at offset 312 and never got 312 records before it.",
        REASONS["between_looks"],
        "Not seen: a first delivery in progress",
        "Not seen: work that was not committed",
        "partition 0 4,800 6,000 keys not read 1,200 0 partition 1 4,801 6,000 5,990 0 0",
        "2 partitions at 2026-11-22 21:54:05 UTC, 4 at 2026-11-22 22:04:05 UTC.",
    ):  # fmt: skip
        assert part in text, part
    assert "record?state-partition=17&offset=90215" in links(page)
    cells = re.findall(r'data-label="Verdict"><div class="v">(.*?)</div>', page)
    assert [words(each)[2:] for each in cells[::2]] == [
        "order broken", "first records skipped", "not proven", "safe", "safe",
    ]  # fmt: skip


def test_what_is_not_certain_is_there_in_words(site: str) -> None:
    """A count in between, an expansion that settles, a mapping that is not known, fences without an end."""
    text = words(raw(site, PAGES[2])[1])
    for part in (
        "another count may have lain in between",
        "Whether every producer knows the count",
        "no mapping of keys is configured",
        "Where the records from before the expansion end in 6 partitions.",
        "not looked at since the settle time",
    ):
        assert part in text, part
    assert "Not certain" not in words(raw(site, f"expansions?event={WELL.event_id}")[1])


def test_a_fence_that_is_not_known_is_first_then_the_widest() -> None:
    """An exact fence has no width; the retention is named where it took records from before."""
    rows = rows_of(GrownTopic(old_count=4))["expansion_fences"]
    rows[2] |= {"fence_high": None, "log_start_offset": 4_900}
    table = pa.Table.from_pylist(rows, schema=TABLES["expansion_fences"])
    fences = fences_of(lambda _, where: table.filter(where), rows[0]["event_id"])
    assert [(each["partition"], each["width"]) for each in fences] == [(2, None), (0, 1_200), (3, 1_197), (1, 0)]
    assert [each["note"] for each in fences[:2]] == ["the retention removed records from before it", ""]


def test_a_hostile_name_is_text(site: str) -> None:
    """Names of groups and topics are shown as text, and their links lead to themselves alone."""
    for path in (PAGES[0], PAGES[3]):
        status, page = raw(site, path)
        assert status == 200
        assert "<script>document" not in page
        assert "<img" not in page
        assert words(page).isprintable()
    for name in HOSTILE:
        own = urlencode({"group": name})
        assert any(own in address for address in links(page))
        assert raw(site, f"{PAGES[3]}&{own}")[1].count('data-label="Verdict"') == 2


def test_without_tables_the_page_says_what_to_run(tmp_path: Path) -> None:
    """No look yet; then looks alone, which were not judged; then an audit that found nothing since the first look."""
    tables, looks = Tables(TablesConfig(uri=str(tmp_path))), rows_of(WELL)["partition_observations"]
    with web_server(create_app(tables.config, clock=lambda: NOW)) as url:
        assert "No topic was looked at yet: run acktrail expand check TOPIC." in words(raw(url, "expansions")[1])
        assert "too early" not in raw(url, "")[1]
        write_rows(tables, {"partition_observations": looks})
        assert "No topic was audited yet: run acktrail expand check TOPIC." in words(raw(url, "expansions")[1])
        write_rows(tables, {"partition_expansions": []})
        assert "No topic gained partitions since 2026-11-21 00:54:05 UTC." in words(raw(url, "expansions")[1])


def test_nothing_known_of_a_row_is_unknown(tmp_path: Path) -> None:
    """Rows of another release, or of a damaged table, without a topic, a partition, a verdict: shown, never good."""
    rows: Rows = {name: [{"event_id": "e"}] for name in ("partition_expansions", "expansion_fences")}
    with served(tmp_path, {**rows, "expansion_verdicts": [{"event_id": "e", "keys": [{}]}]}) as url:
        for path in ("expansions", "expansions?event=e"):
            status, page = raw(url, path)
            assert (status, "unknown verdict" in words(page), 'class="badge ok"' in page) == (200, True, False)


@pytest.mark.parametrize("table", ["partition_expansions", "expansion_fences", "expansion_verdicts"])
def test_a_damaged_table_is_named_and_the_rest_is_shown(tmp_path: Path, table: str) -> None:
    """Garbage in place of its files: 503, its name, no traceback."""
    with served(tmp_path, rows_of(TROUBLE)) as url:
        for file in (tmp_path / table).rglob("*.parquet"):
            file.write_bytes(b"not parquet at all")
        status, page = raw(url, PAGES[1])
    assert status == 503
    assert table in page
    assert "Traceback" not in page


def test_ten_thousand_verdicts_stay_a_page(tmp_path: Path) -> None:
    """50 rows, the worst first, the others a click away; 200 fences."""
    large = GrownTopic(old_count=5_000, new_count=10_000, verdicts={"billing": "safe", "fraud": "broken"})
    with served(tmp_path, {**rows_of(large), "partition_observations": []}) as url:
        page, last = (raw(url, f"expansions?event={large.event_id}&page={at}")[1] for at in (1, 999))
    assert len(page) < 400_000
    assert "1 of 200" in words(page)
    first, end = (re.findall(r'data-label="Verdict"><div class="v">(.*?)</div>', text) for text in (page, last))
    assert len(first) == len(end) == 50
    assert all("order broken" in each for each in first)
    assert all("safe" in each for each in end)


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
