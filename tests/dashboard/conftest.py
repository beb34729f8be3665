"""A dashboard of many share groups and a reset, some with hostile names, and a browser to look at it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from drivers.browser import CHROMIUM, Page, browsing
from fastapi import FastAPI
from samples.dashboard_tables import NOW, Sizes, write_dashboard_tables, write_evidence_tables
from servers.web_server import web_server

from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.application import create_app

WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (each) => violations.push(each.violatedDirective));
window.addEventListener('error', (each) => violations.push('' + each.message));
"""


class Site:
    """A dashboard that is served, and its tables."""

    def __init__(self, url: str, tables: Tables) -> None:
        self.url, self.tables = url, tables

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page, with its entities as characters."""
        answer = httpx.get(self.url + path, timeout=60, trust_env=False, verify=False)
        return answer.status_code, html.unescape(answer.text)

    def words(self, path: str) -> str:
        """A page without its tags; links to state records keep their addresses."""
        text = httpx.get(self.url + path, timeout=60, trust_env=False, verify=False).text
        text = re.sub(r"<a href=\"(record[^\"]+)\">", r" \1 ", text)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())

    def finding(self) -> str:
        """The address of a finding's page."""
        row = self.tables.rows("findings", {"rule": "missing_state"})[0]
        return f"finding?rule={row['rule']}&subject={quote(row['subject'], safe='')}"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Many findings with hostile names, a gap, a record in quarantine, failing checks, a reset from plan to proof;
    mounted below a path."""
    root = tmp_path_factory.mktemp("site") / "tables"
    sizes = Sizes(groups=19, partitions_a_group=2, runs=48, fine_days=0.5, hourly_days=1.5, findings=90)
    tables = write_dashboard_tables(root, sizes)
    write_evidence_tables(tables)
    host = FastAPI()
    host.mount("/acktrail", create_app(tables.config, clock=lambda: NOW))
    with web_server(host) as url:
        yield Site(url + "acktrail/", tables)


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One tab, which notes what the policy refuses."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with browsing(tmp_path_factory.mktemp("browser") / "profile") as page:
        page.call("Page.enable")
        page.call("Network.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        yield page
