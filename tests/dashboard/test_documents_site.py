"""The documents as a site, as `make docs` builds it, in a real browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from drivers.axe import CONTRAST, axe_violations, show_as
from drivers.browser import Page
from drivers.own_process import finished
from servers.web_server import web_server
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

pytestmark = [pytest.mark.slow, pytest.mark.full]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("index", "tutorials/poison-record", "how-to/reset-offsets", "reference/metrics")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    folder = tmp_path_factory.mktemp("site")
    done = finished(sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with web_server(Starlette(routes=[Mount("/", StaticFiles(directory=folder, html=True))])) as url:
        yield url


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_site_is_accessible_and_fits(built: str, tab: Page, page: str) -> None:
    """Nothing for axe, in light and dark, on a desktop and on a phone; no page scrolls sideways; no request leaves the
    site."""
    for scheme, width, rules in (("light", 1280, ()), ("light", 390, ()), ("dark", 1280, CONTRAST)):
        show_as(tab, scheme, width)
        tab.open(f"{built}site.css")  # without scripts, which would keep the first choice of light or dark again
        tab.until("location.pathname === '/site.css' && document.readyState === 'complete'", timeout_s=60)
        tab.value("localStorage.clear()")
        tab.open(f"{built}{page}.html")
        colours = "slate" if scheme == "dark" else "default"
        shown = f"document.readyState === 'complete' && document.body.dataset.mdColorScheme === '{colours}'"
        tab.until(f"{shown} && !!document.querySelector('article h1')", timeout_s=60)
        assert axe_violations(tab, rules) == [], (page, scheme, width)
        assert tab.value("document.documentElement.scrollWidth <= innerWidth"), (page, width)
        assert tab.value("performance.getEntriesByType('resource').length")
        assert tab.value(
            "performance.getEntriesByType('resource').every(each => each.name.startsWith(location.origin))"
        )
