"""The application: routes, errors in Connect's shape, and the page of operations."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Route

from acktrail.connect.rest import connector_routes, plugin_routes, worker_routes
from acktrail.connect.rest.access import Message, Receive, Send
from acktrail.connect.rest.answers import Problem
from acktrail.connect.rest.calls import Calls
from acktrail.connect.rest.operations_page import operations_page
from acktrail.connect.runtime.worker_answers import ConnectorConflict
from acktrail.errors import AcktrailError, InputError, InvalidConfiguration, UnknownName

_LIST_OF_ERRORS: Final = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_PAGE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def application(calls: Calls) -> FastAPI:
    """The REST interface of a worker."""
    app = FastAPI(
        title="acktrail connect",
        description="The worker's REST interface, as Kafka Connect's.",
        version=version("acktrail"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={code: {"model": Problem} for code in (400, 401, 403, 404, 409, 500)},
    )
    app.state.calls = calls
    for routes in (connector_routes, plugin_routes, worker_routes):
        app.include_router(routes.router)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(operations_page(app.openapi()), headers=_PAGE_HEADERS)

    app.add_exception_handler(AcktrailError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


class Resources:
    """What Connect's server (JAX-RS) does for every resource: HEAD is GET without a body, OPTIONS names the methods, a
    slash at the end means nothing, and what is not JSON is refused with 415."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = str(scope["path"])
        scope = {**scope, "path": path.rstrip("/") or "/", "method": scope["method"].replace("HEAD", "GET")}
        methods = self._methods(scope)
        if methods and scope["method"] == "OPTIONS":
            allowed = ", ".join(sorted(methods))
            await PlainTextResponse(allowed, headers={"Allow": allowed})(scope, receive, send)
        elif scope["method"] in methods - {"GET", "DELETE"} and _is_other_media(Headers(scope=scope)):
            await _problem(415, _phrase(415))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _methods(self, scope: Message) -> set[str]:
        """The methods that a path has; none: there is no such path."""
        found: set[str] = set()
        for route in self._app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                found |= route.methods or set()
        return found | {"HEAD", "OPTIONS"} if "GET" in found else found | {"OPTIONS"} if found else found


def _is_other_media(headers: Headers) -> bool:
    """Whether the header, or a body without one, is something other than JSON."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    given = headers.get("content-type", "" if has_body else "application/json")
    return given.partition(";")[0].strip().lower() != "application/json"


def _problem(code: int, message: str) -> JSONResponse:
    return JSONResponse(Problem(error_code=code, message=message).model_dump(), status_code=code)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AcktrailError)
    return _problem(_code(error), _message(error))


def _code(error: AcktrailError) -> int:
    if isinstance(error, UnknownName) and error.kind in {"connector", "task"}:
        return 404
    if isinstance(error, ConnectorConflict):
        return 409
    return 400 if isinstance(error, InputError | InvalidConfiguration) else 500


def _message(error: AcktrailError) -> str:
    if isinstance(error, UnknownName) and error.kind in {"connector", "task"}:
        return f"{error.kind.capitalize()} {error.name} not found"
    if isinstance(error, InvalidConfiguration):
        texts = [text for each in error.errors.values() for text in each]
        return "\n".join(
            [
                f"Connector configuration is invalid and contains the following {len(texts)} error(s):",
                *texts,
                _LIST_OF_ERRORS,
            ]
        )
    return error.message + (f"; {error.hint}" if error.hint and not isinstance(error, ConnectorConflict) else "")


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    """What was sent is not shown: it may have secrets."""
    assert isinstance(error, RequestValidationError)
    places = (".".join(map(str, each["loc"])) + f": {each['msg']}" for each in error.errors())
    return _problem(400, "; ".join(places))


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = _phrase(error.status_code) if error.detail == HTTPStatus(error.status_code).phrase else str(error.detail)
    return _problem(error.status_code, message)


def _phrase(code: int) -> str:
    return f"HTTP {code} {HTTPStatus(code).phrase}"


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    """Its text may have anything in it: only its kind is shown."""
    return _problem(500, f"Internal error: {type(error).__name__}")
