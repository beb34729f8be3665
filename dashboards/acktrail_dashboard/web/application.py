"""The dashboard as a FastAPI app: on its own (``acktrail dashboard serve``), by uvicorn at one address, or mounted
below a path of another.

On its own it decides who may see a page: only this machine, or who has the token, as a header or as the cookie of a
login.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from acktrail.config import TablesConfig, setting
from acktrail.errors import AcktrailError, InputError, UnknownName
from acktrail.secrets import Password
from acktrail.serving.access import Access, Message, is_same
from acktrail.serving.http_server import HttpServer, ListenAddress, Tls
from acktrail.serving.tokens import checked_token, token_in
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.page_templates import page_templates, rendered, static_files
from acktrail_dashboard.web.branch_views import branch_views
from acktrail_dashboard.web.pages import changes, export, findings, groups, overview, rules, runbooks, runs
from acktrail_dashboard.web.web_page import TableReader, Visit, WebPage

_LOG: Final = logging.getLogger("acktrail.dashboard")
_NEXT: Final = re.compile(r"[a-z-]{0,40}(\?[^\s\\]{0,4000})?")
"""Where a login leads: a page of the dashboard, never another address."""
_LARGEST_FORM: Final = 8_192
_VARIABLE: Final = "ACKTRAIL_DASHBOARD_TOKEN"
_TOKENS_NAME: Final = "the token of the dashboard"  # what errors call it
_SHELTER: Final = (
    f"give --token-file (or set {_VARIABLE}), and --tls-certificate and --tls-key, or --behind-tls-proxy where a proxy "
    "has the TLS; or listen on 127.0.0.1"
)
_COMPRESSED_FROM: Final = 1_000
_OPENED: Final = (
    "queue_statuses", "run_totals", "status_changes", "queue_trends", "held_states", "findings",
    "group_observations", "share_partition_states", "export_ranges",
)  # fmt: skip
"""What the first pages read."""
PAGES: Final[tuple[WebPage, ...]] = (
    *(page for of in (overview, groups, findings, rules) for page in of.PAGES),
    *(page for each in branch_views() for page in each.pages),
    *(page for of in (changes, export, runs, runbooks) for page in of.PAGES),
)
"""All pages, in the order of the navigation."""
_STATUSES: Final[dict[type[AcktrailError], int]] = {UnknownName: 404, InputError: 400}
"""Of pages that cannot be shown; of others the tables or their storage are the cause."""
_FOR_A_YEAR: Final = "public, max-age=31536000, immutable"
COOKIE: Final = "acktrail_dashboard"
_OPEN_PATHS: Final = ("/static/", "/login")
SESSION_S: Final = 7 * 86_400
Answer = Callable[[Request], Awaitable[Response]]
_HEADERS: Final = {
    # No script, style or form but those of the dashboard's own files; no script or style within a page, no eval.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "SAMEORIGIN",
}


def create_app(
    tables: TablesConfig,
    *,
    access: Access | None = None,
    dependencies: Sequence[Any] = (),
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    pages: Sequence[WebPage] = PAGES,
    is_secure: bool = False,
) -> FastAPI:
    """The app that shows `tables`. `access`: who may see it; None: the app that it is mounted in decides, for instance
    by `dependencies` (as FastAPI has them), which guard every page. `is_secure`: readers come by TLS, also
    where no header of a proxy shows it. Raises ConfigurationError: the root is none.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=list(dependencies))
    dashboard = _Dashboard(TableReader(tables), clock, pages)
    for page in pages:
        app.add_api_route(f"/{page.path}", dashboard.endpoint(page), methods=["GET", "HEAD"], response_model=None)
    app.add_api_route("/static/{name}", static_file, methods=["GET", "HEAD"], response_model=None)
    app.add_exception_handler(HTTPException, dashboard.http_error)
    app.add_middleware(GZipMiddleware, minimum_size=_COMPRESSED_FROM)
    if access is not None:
        if access.token is not None:
            log_in = partial(_log_in, access.token.value, is_secure=is_secure)
            app.add_route("/login", log_in, methods=["POST"])
        app.middleware("http")(partial(_guarded, access))
    app.middleware("http")(with_safe_headers)
    app.state.prepare = dashboard.prepare
    return app


def dashboard_server(
    tables: TablesConfig,
    *,
    host: str,
    port: int,
    token_file: Path | None = None,
    hosts: tuple[str, ...] = (),
    tls: Tls | None = None,
) -> HttpServer:
    """The dashboard of `tables` at an address of this machine; `port` 0: any free one. `hosts`: names that others reach
    it by, behind a proxy. Raises ConfigurationError: the address is none, or taken; others can reach it and there is no
    token or no TLS; the token is too short or cannot be read, or others can read its file; NoTables: there are none."""
    Tables(tables).ensure_there()
    access = Access(token=_token(token_file), hosts=hosts)
    app = create_app(tables, access=access, is_secure=tls is not None and tls.is_of_proxy)
    place = ListenAddress(option="--host", host=host, port=port)
    server = HttpServer(app, place, access, tls=tls, hint=_SHELTER, reads_proxy_headers=True)
    app.state.prepare()
    return server


def _token(file: Path | None) -> Password | None:
    if file is not None:
        return token_in(file, _TOKENS_NAME)
    text = setting(_VARIABLE)
    return checked_token(text, f"{_TOKENS_NAME} in {_VARIABLE}") if text else None


class _Dashboard:
    """Pages of one root of tables."""

    def __init__(self, reader: TableReader, clock: Callable[[], datetime], pages: Sequence[WebPage]) -> None:
        self._reader, self._clock, self._pages = reader, clock, pages

    def prepare(self) -> None:
        """Compile the templates and open the tables, so that the first visit does not wait for it."""
        for template in ("frame.html", "problem.html", *(page.template for page in self._pages)):
            page_templates().get_template(template)
        visit = Visit(path="", root="", query={}, now=self._clock(), reader=self._reader)
        for table in _OPENED:
            visit.exists(table)

    def endpoint(self, page: WebPage) -> Callable[[Request], Response]:
        """What answers for `page`."""

        def answer(request: Request) -> Response:
            visit = self._visit(request.scope, page.path)
            try:
                html = self._framed(visit, page.path, page.title, page.template, page.context(visit))
                return HTMLResponse(html, 503 if visit.problems else 200)
            except AcktrailError as error:
                status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 503)
                return self._problem(visit, status, error.message, error.hint)
            except Exception:  # noqa: BLE001  # a reader gets a page, never a traceback
                _LOG.exception("page %r failed", page.path)
                hint = "a defect; the log of the server has the details"
                return self._problem(visit, 500, f"the page {page.title!r} cannot be shown", hint)

        return answer

    async def http_error(self, request: Request, error: Exception) -> Response:
        """A page for an address that is none, or a method that no page has."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = getattr(error, "headers", None)
        visit = self._visit(request.scope, "")
        if status == 404:  # an HTTP status
            message, hint = "there is no such page", "start at the overview"
        else:
            message, hint = str(getattr(error, "detail", "")), ""
        return await run_in_threadpool(self._problem, visit, status, message, hint, headers=headers)

    def _visit(self, scope: Any, path: str) -> Visit:
        request = Request(scope)
        return Visit(
            path=path, root=_root_of(scope), query=dict(request.query_params), now=self._clock(), reader=self._reader
        )

    def _problem(
        self, visit: Visit, status: int, message: str, hint: str, *, headers: Mapping[str, str] | None = None
    ) -> Response:
        own = {"status": status, "message": message, "hint": hint}
        html = self._framed(visit, visit.path, "Not shown", "problem.html", own)
        return HTMLResponse(html, status, headers=dict(headers or {}))

    def _framed(self, visit: Visit, path: str, title: str, template: str, own: Mapping[str, Any]) -> str:
        """A page's own content with what every page has around it."""
        menu = [(page.path, page.menu) for page in self._pages if page.menu is not None]
        frame = {"visit": visit, "root": visit.root, "path": path, "title": title, "menu": menu, "template": template}
        return rendered("frame.html", {**frame, **own})


async def _log_in(token: str, request: Request, *, is_secure: bool) -> Response:
    form = await _form(request)
    address = next_page(form.get("next", ""))
    expires = int(time.time()) + SESSION_S
    given = session_value(form.get("token", "").strip(), expires)
    value = session_value(token, expires)
    if not is_same(given, value):
        return _login_page(request, address, is_wrong=True)
    answer = RedirectResponse(_root_of(request.scope) + address or "./", 303)
    answer.set_cookie(
        COOKIE,
        value,
        max_age=SESSION_S,
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="lax",
        secure=is_secure or request.url.scheme == "https",
    )
    return answer


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, nothing of one that is too large or no text."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST_FORM:
                return {}
        return {name: values[-1] for name, values in parse_qs(body.decode("utf-8")).items()}
    except (UnicodeDecodeError, ClientDisconnect, ValueError):
        return {}


def next_page(address: str) -> str:
    """A relative address of a page of the dashboard; empty (the first page) for all that is none.

    >>> next_page("groups?status=stuck"), next_page("//elsewhere.example/"), next_page("javascript:alert(1)")
    ('groups?status=stuck', '', '')
    """
    return address if _NEXT.fullmatch(address) else ""


def static_file(name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        return PlainTextResponse("there is no such file\n", 404)
    return Response(file.content, media_type=file.media_type, headers={"Cache-Control": _FOR_A_YEAR})


def _root_of(scope: Any) -> str:
    """The way from a request's address to the dashboard's first page: one step up for each folder."""
    return "../" * (path_within(scope).count("/") - 1)


def session_value(token: str, expires: int) -> str:
    """The cookie of a login: the time of its end (s since the epoch), and a proof of who had the token. It does not
    show the token."""
    proof = hmac.new(token.encode(), f"acktrail dashboard serve {expires}".encode(), hashlib.sha256)
    return f"{expires}.{proof.hexdigest()}"


def is_session(token: str, value: str, now: float) -> bool:
    """Whether a cookie is of a login with this token that has not ended; compared in constant time."""
    text = value.partition(".")[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        return False
    expires = int(text)
    return is_same(session_value(token, expires), value) and now < expires


async def with_safe_headers(request: Request, answer: Answer) -> Response:
    """Every response has these headers."""
    response = await answer(request)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.update(_HEADERS)
    return response


async def _guarded(access: Access, request: Request, answer: Answer) -> Response:
    """Who may not see pages is refused. The login and the files that all pages load need no token."""
    refusal = _refusal(access, request)
    return await answer(request) if refusal is None else refusal


def _refusal(access: Access, request: Request) -> Response | None:
    """What a request gets in place of a page that it may not see: the login, or a plain line for programs."""
    path = path_within(request.scope)
    if path.startswith(_OPEN_PATHS) or access.admits(request.headers.get("authorization", "")):
        return None
    token, cookie = access.token, request.cookies.get(COOKIE, "")
    if token is not None and is_session(token.value, cookie, time.time()):
        return None
    if "text/html" not in request.headers.get("accept", ""):
        challenge = {"WWW-Authenticate": 'Bearer realm="acktrail"'}
        return PlainTextResponse("a token is needed\n", 401, headers=challenge)
    query = request.scope.get("query_string", b"").decode("latin-1")
    address = path.strip("/") + (f"?{query}" if query else "")
    return _login_page(request, next_page(address), is_wrong=False)


def _login_page(request: Request, address: str, *, is_wrong: bool) -> Response:
    """The form that asks for the token."""
    context = {"root": _root_of(request.scope), "next_page": address, "is_wrong": is_wrong}
    return HTMLResponse(rendered("login.html", context), 401)


def path_within(scope: Message) -> str:
    """The path of a request below the path that the dashboard is mounted at."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix) else path
