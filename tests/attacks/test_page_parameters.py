"""Names that a caller chooses meet functions' own parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from dashboard.test_page_answers import SMALL, STUCK
from samples.dashboard_tables import NOW, write_dashboard_tables, write_evidence_tables
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail_dashboard.web import application, web_page

NEEDED = {
    "group": "id=fraud-scoring",
    "share-partition": f"{STUCK}&offset=5",
    "record": "state-partition=17&offset=90210",
    "rule": "id=missing_state",
    "finding": "rule=missing_state&subject=x",
}
"""What a page needs to show anything."""


def parameter_names() -> set[str]:
    """The names of all parameters of the functions that see an address's parameters, and of what templates know."""
    functions = [of for of in vars(web_page.Visit).values() if inspect.isfunction(of)]
    named = {name for of in (*functions, web_page.Visit) for name in inspect.signature(of).parameters}
    return named | {"self", "path", "root", "visit", "title", "template", "caller", "args", "kwargs", "query"}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("pages") / "tables"
    write_evidence_tables(write_dashboard_tables(root, SMALL))
    with web_server(application.create_app(TablesConfig(uri=str(root)), clock=lambda: NOW)) as url:
        yield url


@pytest.mark.parametrize("page", [page.path for page in application.PAGES])
def test_no_parameter_name_breaks_a_page(page: str, dashboard: str) -> None:
    """Who may read pages names a parameter of the address as a function of acktrail names its own (``path``, ``self``):
    they see the same page, not a traceback in the log and the status 500."""
    needed = NEEDED.get(page, "")
    plain = httpx.get(f"{dashboard}{page}?{needed}", timeout=60, trust_env=False)

    odd = urlencode(dict.fromkeys(sorted(parameter_names() - set(re.findall(r"(\w+)=", needed))), "x"))
    found = httpx.get(f"{dashboard}{page}?{needed}&{odd}", timeout=60, trust_env=False)

    assert plain.status_code in (200, 400, 404)
    assert found.status_code == plain.status_code, found.text
