"""The dashboard within Airflow: Airflow's own API server, in this process, and its own permissions."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urljoin, urlsplit

import httpx
import pytest
from drivers.airflow_home import Late
from drivers.airflow_scene import AirflowPages
from drivers.browser import CHROMIUM, browsing
from samples.dashboard_tables import Sizes, write_dashboard_tables, write_evidence_tables
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail.view.notifications import changed
from acktrail_dashboard.web.application import PAGES

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore:Using `httpx`")]

PREFIX = "/acktrail"
DOCS = Path(__file__).parents[2] / "docs"
dashboard_plugin, links = Late("acktrail_dags.dashboard_plugin"), Late("acktrail_dags.links")
PATHS = (
    *(page.path for page in PAGES if page.menu is not None or page.path == ""),
    *("airflow?dag_id=acktrail_export&run_id=x", "nothing-here", "record?state-partition=17&offset=90210"),
    *("static/report.css", "static/icon.svg"),
)


@contextmanager
def api_server(env: dict[str, str]) -> Iterator[httpx.Client]:
    """Airflow's API server with the plugin that its entry point names, in an environment."""
    from airflow import plugins_manager
    from airflow.api_fastapi.app import create_app

    for cached in (plugins_manager._get_plugins, plugins_manager.get_fastapi_plugins):
        cached.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64), **env}.items():
            patched.setenv(name, value)
        with (
            web_server(create_app(apps="core")) as url,
            httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with findings, checks, a reset."""
    root = tmp_path_factory.mktemp("mounted") / "tables"
    found = write_dashboard_tables(root, Sizes(groups=8, partitions_a_group=2, runs=48, hourly_days=0.0))
    write_evidence_tables(found)
    from acktrail_dags.task_inputs import table_run_id

    own = table_run_id("acktrail_export", "manual__1", 2)
    found.append(
        "export_ranges", [{"run_id": own, "state_partition": 1, "records_read": 4_711, "records_decoded": 4_711}]
    )
    planned = table_run_id("acktrail_reset_offsets", "manual__1", 0)
    found.append("reset_plans", [{"run_id": planned, "plan_id": "of-that-run", "kind": "reset"}])
    return root


@pytest.fixture(scope="module")
def server(airflow_home: Path, tables: Path) -> Iterator[httpx.Client]:
    """Of one set of tables."""
    with api_server({"ACKTRAIL_TABLES": str(tables)}) as found:
        yield found


def token(role: str | None) -> dict[str, str]:
    """What a logged-in user sends; None: somebody without any role."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    manager: Any = get_auth_manager()
    return {"Authorization": f"Bearer {manager.generate_jwt(SimpleAuthManagerUser(username='ann', role=role))}"}


@pytest.mark.few(2)
@pytest.mark.parametrize("role", ["VIEWER", "USER", "OP", "ADMIN"])
def test_who_may_read_the_export_dag_reads_the_pages(server: httpx.Client, role: str) -> None:
    """A viewer sees what an administrator sees: every page and file."""
    headers = token(role)
    for path in PATHS:
        answer = server.get(f"{PREFIX}/{path}", headers=headers)
        assert answer.status_code == (404 if path == "nothing-here" else 200), (path, answer.text[:300])
    overview = server.get(f"{PREFIX}/", headers=headers)
    assert "billing-workers" in overview.text
    assert "frame-ancestors 'self'" in overview.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
def test_without_a_login_there_is_nothing(server: httpx.Client, path: str) -> None:
    """A program gets 401, a browser Airflow's login and then the page that it asked for; neither sees a name."""
    address = f"{PREFIX}/{path}"
    answer = server.get(address)
    if path == "nothing-here":  # no such page: no guard, and nothing to guard
        assert (answer.status_code, "billing-workers" in answer.text) == (404, False)
        return
    assert answer.status_code == 401
    assert "billing-workers" not in answer.text
    answer = server.get(address, headers={"Accept": "text/html"})
    assert answer.status_code == 307
    assert answer.headers["location"].endswith(
        "auth/login?next=" + quote(f"{str(server.base_url).rstrip('/')}{address}", safe="")
    )


def test_a_login_without_the_right_is_not_enough(server: httpx.Client) -> None:
    """Somebody who may not read the DAG, a token that was changed and none of Airflow's: no page. A browser in Airflow
    carries its token as a cookie, which is enough."""
    changed = token("VIEWER")["Authorization"][:-4] + "AAAA"
    for headers in (token(None), {"Authorization": changed}, {"Authorization": "Bearer x"}):
        for path in ("", "findings", "static/report.css"):
            answer = server.get(f"{PREFIX}/{path}", headers=headers)
            assert answer.status_code in {401, 403}, path
            assert "billing-workers" not in answer.text
    as_cookie = {"Cookie": f"_token={token('VIEWER')['Authorization'].removeprefix('Bearer ')}"}
    assert server.get(f"{PREFIX}/findings", headers=as_cookie).status_code == 200


def test_nothing_can_be_changed(server: httpx.Client) -> None:
    """No page takes anything but a question, whoever asks. FastAPI's own documents, which no guard covers, are not
    there."""
    for method, path in product(("POST", "PUT", "PATCH", "DELETE"), ("", "changes", "login")):
        answer = server.request(method, f"{PREFIX}/{path}", headers=token("ADMIN"))
        assert answer.status_code in {404, 405}, (method, path)
    for path in ("docs", "redoc", "openapi.json"):
        assert server.get(f"{PREFIX}/{path}").status_code == 404


def test_the_tab_of_a_run_shows_what_that_run_left(server: httpx.Client) -> None:
    """By whichever try wrote it; a run without rows, and a DAG that is not acktrail's, are told apart; a DAG's own tab
    shows its newest run."""
    address, headers = f"{PREFIX}/airflow?dag_id=", token("VIEWER")
    own = server.get(f"{address}acktrail_export&run_id=manual__1&task_id=export&map_index=-1", headers=headers)
    assert "4,711" in own.text
    assert "Nothing in the tables" in server.get(f"{address}acktrail_export&run_id=manual__2", headers=headers).text
    other = server.get(f"{address}<b>other</b>&run_id=x", headers=headers)
    assert "Not one of acktrail" in other.text
    assert "<b>other" not in other.text
    newest = server.get(f"{address}acktrail_reconcile&run_id={{RUN_ID}}", headers=headers)
    assert "run-00047" in newest.text
    for run_id, plan in (("manual__1", "of-that-run"), ("{RUN_ID}", "2026000001")):
        reset = server.get(f"{address}acktrail_reset_offsets&run_id={run_id}", headers=headers)
        assert f"change?plan={plan}" in reset.text


def test_every_view_leads_to_a_page_by_a_relative_link(server: httpx.Client) -> None:
    """One entry in the menu and three tabs, each with a route of its own, none of which begins with a slash."""
    from acktrail_dags.dashboard_plugin import AcktrailPlugin

    views = AcktrailPlugin().external_views
    assert {view["destination"] for view in views} == {"nav", "dag", "dag_run", "task_instance"}
    assert len({view["url_route"] for view in views}) == len(views)
    for view in views:
        assert len(view["name"]) <= 8
        for link in (view["href"], view["icon"]):
            assert not link.startswith(("/", "http"))
            assert server.get(f"/{link}", headers=token("VIEWER")).status_code == 200, link
    listed = server.get("/api/v2/plugins", headers=token("ADMIN")).json()["plugins"]
    assert [plugin["name"] for plugin in listed if plugin["name"] == "acktrail"] == ["acktrail"]


def test_each_profile_has_its_own_pages(airflow_home: Path, tables: Path) -> None:
    """Two profiles without a file of profiles have their tables side by side; one that has none says so and does not
    hide the other; tabs lead to the profile of their DAG."""
    env = {"ACKTRAIL_TABLES": str(tables.parent), "ACKTRAIL_DAG_PROFILES": "tables,other one"}
    with api_server(env) as server:
        headers = token("VIEWER")
        listed = server.get(f"{PREFIX}/", headers=headers)
        assert (listed.status_code, 'href="tables/"' in listed.text) == (200, True)
        assert "other one" in listed.text
        assert "billing-workers" in server.get(f"{PREFIX}/tables/groups", headers=headers).text
        empty = server.get(f"{PREFIX}/other_one/groups", headers=headers)
        assert (empty.status_code, "billing-workers" in empty.text) == (503, False)
        tab = server.get(f"{PREFIX}/airflow?dag_id=acktrail_export__tables&run_id=manual__1", headers=headers)
        assert tab.headers["location"] == "tables/airflow?dag_id=acktrail_export__tables&run_id=manual__1"
        for path in ("", "airflow?dag_id=x", "tables/", "other_one/groups"):
            assert server.get(f"{PREFIX}/{path}").status_code == 401, path


SETUPS = {"": (None,), "tables": ("tables",), "tables,other one": ("tables", "other one")}
"""What ACKTRAIL_DAG_PROFILES names, and the profiles of its DAGs."""
OF_DOCUMENT = re.compile(r"AIRFLOW(/plugin/[^`\s]+)")
HREF = re.compile(r'href="([^"#]+)"')


def page_in_frame(url: str, address: str) -> str:
    """What Airflow's frame shows at an address of its own: what follows ``plugin/NAME``, else what the plugin says."""
    route, page = re.fullmatch(rf"{re.escape(url)}/plugin/([^/]+)(/.*)?", address).groups()  # type: ignore[union-attr]
    views = {view["url_route"]: view["href"] for view in dashboard_plugin.AcktrailPlugin().external_views}
    return page or f"/{views[route]}"


def linked_pages(server: httpx.Client, start: str) -> Iterator[tuple[str, httpx.Response]]:
    """Every page that links lead to from `start`; of one page with other values once."""
    seen, waiting = set[object](), [start]
    while waiting:
        address = waiting.pop()
        parts = urlsplit(address)
        kind = parts.path, *sorted(dict(parse_qsl(parts.query)))
        if kind not in seen and parts.path.startswith(PREFIX):
            seen.add(kind)
            answer = server.get(address, headers=token("VIEWER"))
            yield address, answer
            waiting += [urljoin(address, unescape(link)) for link in HREF.findall(answer.text) if "://" not in link]


def opened(server: httpx.Client, address: str) -> str:
    """The text of the page there."""
    answer = server.get(address, headers=token("VIEWER"), follow_redirects=True)
    assert answer.status_code == 200 or "there is no such folder" in answer.text, (address, answer.text[:300])
    assert "<main" in answer.text or address.endswith(".svg"), address  # for any other address Airflow has its own page
    return answer.text


@pytest.mark.parametrize("named", ["", pytest.param("tables", marks=pytest.mark.full), "tables,other one"])
def test_every_link_leads_to_its_page(
    airflow_home: Path, tables: Path, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of messages, documents, menu, tabs and pages, with no, one and two profiles. A browser shows in Airflow's
    frame what the address says, and the menu's picture."""
    profiles, folder = SETUPS[named], "/tables" if "," in named else ""
    env = {"ACKTRAIL_TABLES": str(tables.parent if named else tables), "ACKTRAIL_DAG_PROFILES": named}
    with api_server(env) as server:
        url = str(server.base_url).rstrip("/")
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", url)
        dashboards = [links.dashboard_address(profile) for profile in profiles]
        sent = changed({}, Tables(TablesConfig(uri=str(tables))), "run-00047")
        assert {message.page for message in sent} >= {"group", "finding"}
        messages = [message.address(dashboards[0]) for message in sent]
        documents = [at for file in DOCS.rglob("*.md") for at in OF_DOCUMENT.findall(file.read_text())]
        documents = [url + at.replace("/PROFILE", folder) for at in documents if bool(folder) == ("/PROFILE" in at)]
        documents = [at if "?" in at else f"{at.rstrip('/')}/" for at in documents]  # alerts add a page to it
        assert documents
        for address in (*messages, *dashboards, *documents):
            opened(server, page_in_frame(url, address))
        for view in dashboard_plugin.AcktrailPlugin().external_views:
            opened(server, f"/{view['href']}")
            opened(server, f"/{view['icon']}")
        tab = f"{PREFIX}{folder}/airflow?dag_id=acktrail_export{folder.replace('/', '__')}&run_id=manual__1"
        (outer,) = re.findall(r'href="([^"]+)" data-outer', opened(server, tab))
        first_page = page_in_frame(url, urljoin(url + tab, outer))
        assert urlsplit(first_page).path == f"{PREFIX}{folder}/"
        for start in (first_page, f"{PREFIX}/"):
            for address, answer in linked_pages(server, start):
                is_gone = "id=g&" in f"{address}&"  # a plan outlives its group
                is_absent = "there is no such folder" in answer.text  # the other profile has no tables
                expected = 503 if is_absent else 404 if is_gone else 200
                assert answer.status_code == expected, (start, address)
                assert "there is no such page" not in answer.text, (start, address)
        if CHROMIUM:
            look_at(url, [messages[0], *dashboards], tmp_path / "browser")


def look_at(url: str, addresses: list[str], profile: Path) -> None:
    """Each in a browser, as a viewer."""
    with browsing(profile) as tab:
        pages = AirflowPages(tab, url, token("VIEWER")["Authorization"].removeprefix("Bearer "))
        for address in addresses:
            pages.open(address.removeprefix(f"{url}/"))
            pages.frame_is_at(page_in_frame(url, address))
            assert pages.frame_value("d.querySelector('main h1, main h2') !== null"), address
        tab.until("[...document.images].find(image => image.src.includes('icon.svg'))?.naturalWidth > 0")


def test_without_tables_the_page_says_what_to_set(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow starts all the same, and who may look is told what is missing."""
    monkeypatch.delenv("ACKTRAIL_TABLES", raising=False)
    with api_server({}) as server:
        answer = server.get(f"{PREFIX}/findings", headers=token("VIEWER"))
        assert answer.status_code == 503
        assert "no root of tables is given" in answer.text
        assert server.get(f"{PREFIX}/findings").status_code == 401
