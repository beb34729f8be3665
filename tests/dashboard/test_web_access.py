"""Who sees the dashboard, and the headers of each response: asked over HTTP of a running server."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import typer
from dashboard.conftest import Site
from samples.dashboard_tables import NOW
from servers.web_server import web_server
from typer.testing import CliRunner

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, RetryableError
from acktrail.secrets import Password
from acktrail.serving.access import Access
from acktrail_dashboard.command import health
from acktrail_dashboard.page_templates import static_files
from acktrail_dashboard.web.application import (
    COOKIE,
    create_app,
    dashboard_server,
    is_session,
    next_page,
    session_value,
)

TOKEN = "a token of the tests, long enough"
HTML = {"Accept": "text/html"}
command = typer.Typer()
command.command()(health)
EVIL = ("/static/../application.py", "/static/%2e%2e/serving.py", "/static/..%2f..%2fstyle.css", "/static//etc/passwd",
        "/static/", "/static/%00", "/..%2f..%2fetc/passwd", "/static/SHA256SUMS")  # fmt: skip


class Answer:
    """Status, headers and body of one response."""

    def __init__(self, url: str, path: str, method: str = "GET", body: str | None = None, **headers: str) -> None:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=60)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=names)
        response = connection.getresponse()
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode("utf-8", "replace")
        connection.close()


@pytest.fixture(scope="module")
def locked(site: Site) -> Iterator[str]:
    """A dashboard with a token."""
    app = create_app(site.tables.config, access=Access(token=Password(TOKEN)), clock=lambda: NOW)
    with web_server(app) as url:
        yield url


@pytest.fixture(scope="module")
def local(site: Site) -> Iterator[str]:
    """A dashboard without a token, for this machine alone."""
    with web_server(create_app(site.tables.config, access=Access(), clock=lambda: NOW)) as url:
        yield url


@pytest.mark.parametrize("path", ["/", "/groups", "/share-partitions?search=x", "/nothing-here", "/a/b/c"])
@pytest.mark.parametrize(
    "authorization", ["", "Bearer wrong", f"Bearer {TOKEN[:-1]}", f"bearer  {TOKEN}x", "Basic eDp5", f"Token {TOKEN}"]
)
def test_without_the_token_there_is_no_page(locked: str, path: str, authorization: str) -> None:
    """No token, a wrong one and a part of the right one get 401 and nothing of the tables, pages that are none too."""
    answer = Answer(locked, path, Authorization=authorization, **HTML)

    assert answer.status == 401
    assert "billing-workers" not in answer.text
    assert 'name="token"' in answer.text


def test_programs_send_the_token_as_a_header(locked: str) -> None:
    """The right token gets the page; without one, a program gets a plain line and the challenge."""
    assert "billing-workers" in Answer(locked, "/", Authorization=f"Bearer {TOKEN}").text
    refused = Answer(locked, "/")
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Bearer realm="acktrail"')


def test_a_login_gives_a_cookie_that_shows_no_token(locked: str) -> None:
    """The form leads back to the page that was asked for; the cookie opens pages, a tampered one does not."""
    asked = Answer(locked, "/groups?status=stuck&search=%22%3E", **HTML)
    assert "groups?status=stuck&amp;search=%22%3E" in asked.text
    form = urlencode({"token": TOKEN, "next": "groups?status=stuck"})
    done = Answer(locked, "/login", "POST", form, **{"Content-Type": "application/x-www-form-urlencoded"})
    cookie = done.headers["Set-Cookie"]
    pair = cookie.split(";")[0]

    assert (done.status, done.headers["Location"]) == (303, "groups?status=stuck")
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=lax"} <= {each.strip() for each in cookie.split(";")}
    assert "billing-workers" in Answer(locked, "/", Cookie=pair).text
    for tampered in (pair[:-1], pair + "0", pair.replace("=", "=9", 1), f"{COOKIE}=", f"{COOKIE}=1.{'0' * 64}"):
        assert Answer(locked, "/", Cookie=tampered).status == 401


@pytest.mark.parametrize(
    "body", ["token=wrong", "", "token=", "%ff=%ff", "token=" + "x" * 100_000, f"token={TOKEN[:-1]}", "token=%00"]
)
def test_a_wrong_login_gets_no_cookie(locked: str, body: str) -> None:
    """A wrong token, a form that is none and one that is too large: the form again, 401, no cookie."""
    answer = Answer(locked, "/login", "POST", body)

    assert (answer.status, answer.headers["Set-Cookie"]) == (401, None)


@pytest.mark.parametrize(
    "address",
    ["//evil.example/", "https://evil.example/", "javascript:alert(1)", "/\\evil.example", "a/../b", "x?\r\ny"],
)
def test_a_login_leads_to_a_page_of_the_dashboard_alone(locked: str, address: str) -> None:
    """An address elsewhere is replaced by the first page."""
    form = urlencode({"token": TOKEN, "next": address})
    answer = Answer(locked, "/login", "POST", form)

    assert next_page(address) == ""
    assert (answer.status, answer.headers["Location"]) == (303, "./")


def test_a_session_ends() -> None:
    """The proof covers the end: it cannot be moved, and a session past it is none."""
    value = session_value(TOKEN, 1_000)

    assert is_session(TOKEN, value, 999)
    assert not is_session(TOKEN, value, 1_000)
    assert not is_session(TOKEN, value.replace("1000", "2000"), 999)
    assert not is_session("another token, long enough", value, 999)


@pytest.mark.parametrize(
    "path", ["/", "/groups", "/nothing-here", "/static/report.css", "/static/none.css", "/docs", "/login"]
)
def test_every_response_has_a_strict_policy(local: str, locked: str, path: str) -> None:
    """Pages, errors, files, the login: the policy allows no inline script or style, no eval and no other server."""
    for url in (local, locked):
        answer = Answer(url, path, **HTML)
        policy = answer.headers["Content-Security-Policy"]

        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", [*EVIL, "/docs", "/redoc", "/openapi.json"])
def test_a_path_leads_to_no_file(local: str, path: str) -> None:
    """A path that leaves the folder of the files finds nothing, and FastAPI adds no page of its own."""
    answer = Answer(local, path)

    assert answer.status == 404
    assert "import" not in answer.text.replace("important", "")


def test_nothing_can_be_changed(local: str) -> None:
    """Pages can be read, and nothing else."""
    assert {Answer(local, "/groups", method, "x=y").status for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}


def test_others_need_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listening for others without a token, with a short one or with a file that is none is refused."""
    monkeypatch.delenv("ACKTRAIL_DASHBOARD_TOKEN", raising=False)
    tables, short = TablesConfig(uri=str(tmp_path)), tmp_path / "short"
    short.write_text("secret\n")
    short.chmod(0o600)
    cases: list[dict[str, Any]] = [{}, {"token_file": short}, {"token_file": tmp_path / "none"}]
    for more in cases:
        with pytest.raises(ConfigurationError) as caught:
            dashboard_server(tables, host="0.0.0.0", port=0, **more)
        assert "secret" not in str(caught.value)


def test_vendored_files_are_the_released_ones() -> None:
    """Each vendored file has the hash that was written down when it was taken from its package, and its licence is
    beside it."""
    import hashlib

    folder = Path(__file__).parents[2] / "dashboards/acktrail_dashboard/static"
    listed = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())

    assert set(listed) == {file.name for file in folder.glob("uplot*")}
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in listed} == listed
    assert b"MIT License" in static_files()["uplot-LICENSE.txt"].content


def test_health_check_asks_for_a_page(locked: str, tmp_path: Path) -> None:
    """With the token the dashboard answers; without it the check is refused, and nothing is shown."""
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    port = str(urlsplit(locked).port)
    found = CliRunner().invoke(command, ["--port", port, "--token-file", str(file)])
    assert (found.exit_code, found.stdout) == (0, "the dashboard answers\n")
    refused = CliRunner().invoke(command, ["--port", port])
    assert isinstance(refused.exception, ConfigurationError)
    assert "refused the health check with 401" in refused.exception.message


def test_health_check_fails_where_tables_cannot_be_read() -> None:
    """A dashboard whose storage does not answer is not healthy."""
    nowhere = TablesConfig(
        uri="s3://gone/tables",
        options={"aws_endpoint": "http://127.0.0.1:9", "aws_allow_http": "true", "max_retries": "0", "aws_region": "x",
                 "retry_timeout": "1s", "aws_access_key_id": "a", "aws_secret_access_key": "b"},
    )  # fmt: skip
    with web_server(create_app(nowhere, access=Access(), clock=lambda: NOW)) as url:
        found = CliRunner().invoke(command, ["--port", str(urlsplit(url).port)])
    assert isinstance(found.exception, RetryableError)
