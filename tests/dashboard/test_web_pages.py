"""Every page of the dashboard in a real browser: what it shows, what a hostile name does, what a person with a
keyboard, a screen reader or a phone gets."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from dashboard.conftest import Site
from drivers.axe import CONTRAST, axe_violations, show_as
from drivers.browser import PAGE_BYTES, Page
from samples.dashboard_tables import HOSTILE, NOW, topic_id_of
from samples.sample_run import RUN, hostile_run
from servers.web_server import web_server

from acktrail.secrets import Password
from acktrail.serving.access import Access
from acktrail_dashboard.report import render_html
from acktrail_dashboard.web.application import create_app

pytestmark = pytest.mark.slow

STUCK = {"group": "fraud-scoring", "topic": topic_id_of("payments"), "partition": 0}
ADDRESSES = (
    "", "groups?search=e", "group?id=fraud-scoring", "share-partition?" + urlencode({**STUCK, "offset": 1_236_450}),
    "findings?severity=critical", "finding", "change?plan=2026000001",
    "check?run=run-00037&suite=state_records&expectation=batches_non_overlapping", "export", "share-partitions",
    "record?state-partition=17&offset=90210", "record?state-partition=3&offset=41", "rules", "runbooks",
    "rule?id=export_contiguous", "checks", "changes", "run?id=run-00047",
)  # fmt: skip


def show(tab: Page, url: str, scheme: str = "light") -> None:
    """Open a page and wait until its scripts are done."""
    show_as(tab, scheme, 1280)
    tab.value("window.isOld = true")
    tab.open(url)
    tab.until("!window.isOld && document.readyState === 'complete'", timeout_s=60)


def judged(tab: Page, where: object) -> None:
    """Nothing for axe in light, nor in dark; no scrolling sideways, also not on a phone."""
    for scheme, width, rules in (("light", 1280, ()), ("dark", 1280, CONTRAST)):
        show_as(tab, scheme, width)
        assert axe_violations(tab, rules) == [], (where, scheme)
    for width in (1280, 390):
        show_as(tab, "light", width)
        assert tab.value("document.documentElement.scrollWidth <= innerWidth"), (where, width)


@pytest.mark.few(9)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_accessible_and_fits(site: Site, tab: Page, address: str) -> None:
    """Nothing that the policy refuses, no request to another server; less than 200 kB with its files, unpacked; a style
    sheet that is there."""
    show(tab, site.url + (site.finding() if address == "finding" else address))
    assert 2_000 < tab.value(PAGE_BYTES) < 200_000
    judged(tab, address)
    assert tab.value("violations") == []
    assert tab.value("performance.getEntriesByType('resource').every(each => each.name.startsWith(location.origin))")
    assert tab.value("[...document.styleSheets].every(sheet => sheet.cssRules.length)")
    assert tab.value("document.title").endswith("· acktrail")


def test_pages_of_their_own_are_accessible(site: Site, tab: Page, tmp_path: Path) -> None:
    """The login, an address that is none, and a report of hostile names. Its policy refuses what is put into it, and
    nothing else."""
    text = render_html(hostile_run(), RUN, written_at=NOW)
    report, changed = tmp_path / "report.html", tmp_path / "changed.html"
    report.write_text(text, "utf-8")
    changed.write_text(text.replace("<main>", "<main><script>document.title='owned'</script>"), "utf-8")
    guarded = create_app(site.tables.config, access=Access(token=Password("a token of the tests, long enough")))
    with web_server(guarded) as url:
        for address in (url, f"{site.url}nothing-here", report.as_uri()):
            show(tab, address)
            judged(tab, address)
    assert tab.value("violations") == []
    show(tab, changed.as_uri())
    assert tab.value("violations") == ["script-src-elem"]
    assert "owned" not in tab.value("document.title")


def test_the_overview_says_first_who_is_worst_and_what_to_do(site: Site, tab: Page) -> None:
    """The headline names the worst group; its row has the share partition that is worst, why, and what to do; findings
    stand above what changed."""
    show(tab, site.url)
    row = "document.querySelector('#groups tbody tr')"
    assert tab.value(f"{row}.querySelector('a').textContent.trim()")[:30] in tab.value(
        "document.querySelector('h1').innerText"
    )
    why = f"{row}.querySelector('[data-label=Why]')"
    assert "share-partition?" in tab.value(f"{why}.querySelector('a').href")
    told = tab.value(f"{why}.textContent")
    advice = told.partition("What to do: ")[2]
    assert advice, told
    assert not {"GROUP", "TOPIC"} & {*advice.split()}, advice
    order = tab.value("[...document.querySelectorAll('main section')].map(each => each.id)")
    assert order.index("groups") < order.index("findings") < order.index("changes")


@pytest.mark.parametrize("address", ["", "groups"])
def test_a_phone_shows_a_line_of_what_needs_nothing(site: Site, tab: Page, address: str) -> None:
    """Name and status of a group that is idle or ok; all of its cells on a wide screen, and of groups in trouble."""
    show(tab, site.url + address)
    calm, other = "#groups tr.calm", "#groups tbody tr:not(.calm)"
    hidden = "[...document.querySelectorAll('{} > *')].filter(each => getComputedStyle(each).display === 'none').length"
    heights = f"[...document.querySelectorAll('{calm}')].map(each => each.offsetHeight)"
    assert tab.value(hidden.format(calm)) == 0
    show_as(tab, "light", 390)
    assert len(tab.value(heights)) > 1
    assert min(tab.value(heights)) < 45, "a longer name may take two lines"
    assert tab.value(hidden.format(calm)) > 0
    assert tab.value(hidden.format(other)) == 0


def test_axe_would_find_something(site: Site, tab: Page) -> None:
    """The check above can fail: a field without a label and text that is hard to read are found."""
    show(tab, site.url)
    tab.value("document.querySelector('main').insertAdjacentHTML('beforeend', '<input class=bad>')")
    tab.value("document.querySelector('h1').style.color = 'rgb(240, 240, 240)'")

    assert {"label", "color-contrast"} <= {word.strip(":") for word in " ".join(axe_violations(tab)).split()}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_text(site: Site, tab: Page, name: str) -> None:
    """On its own pages and in lists a name is shown with its hidden characters visible, leads to its own page, and
    runs nothing."""
    show(tab, site.url + "groups?" + urlencode({"search": name}))
    wanted = json.dumps(urlencode({"id": name}))
    own = f"[...document.querySelectorAll('#groups tbody a')].find(each => each.search.includes({wanted}))"
    shown = tab.value(f"{own}.textContent")
    show(tab, tab.value(f"{own}.href"))
    heading = tab.value("document.querySelector('h1 bdi').textContent")
    show(tab, tab.value("document.querySelector('#share-partitions tbody a').href"))

    assert heading == shown
    assert shown.isprintable()
    assert tab.value("document.querySelector('.crumbs bdi').textContent") == shown
    assert tab.value("document.images.length + document.querySelectorAll('script:not([src])').length") == 0
    assert tab.value("document.title").endswith("· acktrail")
    assert tab.value("violations") == []


def test_lines_are_drawn_by_the_script_and_without_it(site: Site, tab: Page) -> None:
    """With the script a canvas with a role and a label stands for each figure, and its legend has the newest values;
    without it the table has the same values."""
    address = site.url + "share-partition?" + urlencode(STUCK)
    show(tab, address)
    tab.until("document.querySelectorAll('figure.drawn').length === 3", timeout_s=60)
    assert tab.value("[...document.querySelectorAll('canvas')].every(each => each.role === 'img' && each.ariaLabel)")
    shown = tab.value("[...document.querySelectorAll('.u-legend .u-value')].map(each => each.textContent)")
    assert len(shown) > 6
    assert not {"", "\N{EN DASH}", "--"} & set(shown)
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(address)
        tab.until("document.querySelectorAll('figure tbody tr').length >= 6", timeout_s=60)
        assert tab.value("document.querySelectorAll('canvas').length") == 0
        newest = "document.querySelector('figure tbody td').textContent"
        assert tab.value(newest) == tab.value(
            "(() => { const own = JSON.parse(document.querySelector('figure').dataset.chart).lines[0].values;"
            " return own.at(-1).toLocaleString('en-US') })()"
        )
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_key_leads_to_the_search(site: Site, tab: Page) -> None:
    """`/` moves the cursor to the search, and Enter lists what was found; the first Tab leads to the content."""
    show(tab, site.url)
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
    assert tab.value("document.activeElement.id") == "find"
    tab.call("Input.insertText", text="fraud")
    tab.value("window.isOld = true")
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
    tab.until("!window.isOld && document.readyState === 'complete'", timeout_s=60)
    assert tab.value("[...document.querySelectorAll('#groups tbody th')].map(each => each.textContent.trim())") == [
        "fraud-scoring"
    ]
    tab.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", windowsVirtualKeyCode=9)
    assert tab.value("document.activeElement.className") == "skip"


def test_the_parts_of_a_list_are_linked(site: Site, tab: Page) -> None:
    """Filters and the range of time stay in every link of a page; a status shows its own rows alone."""
    show(tab, site.url + "groups?status=ok&search=e")
    chips = "[...document.querySelectorAll('.chips a')].map(each => each.search)"
    assert all("search=e" in each for each in tab.value(chips))
    badges = "[...document.querySelectorAll('#groups td .badge')].map(each => each.className)"
    assert set(tab.value(badges)) == {"badge ok"}
    show(tab, site.url + "?range=7d")
    assert "range=7d" in tab.value("document.querySelector('#groups tbody a').search")
